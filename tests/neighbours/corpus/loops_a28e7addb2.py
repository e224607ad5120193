# Run from the project's root: python -m tests.neighbours.fuzz --script FILE
# Broken when it was found:
#   error: 'TrainingError' and ''
#   shape: 1000.0 and 995.622821904295
from tests.neighbours.loops import *

case = LoopCase(rows='words', count=2, odd='', place=0, items=True, change='none', collate='by hand', augment='none', dropout='none', norm='none', fill='none', middle='none', loss='hardest half', batch=None, seed=0, optimizer='SGD', own_loop=False, per_owner=0, of_owner=1, owner='', copies=1, schedule='', precision='', workers=1, clip='automatic', device='cpu')
