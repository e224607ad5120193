# Run from the project's root: python -m tests.neighbours.fuzz --script FILE
# Broken when it was found:
#   error: 'IndexError: Target 1000000 is out of bounds.' and ''
from tests.neighbours.loops import *

case = LoopCase(rows='numbers', count=2, odd='label', place=0, items=False, change='none', collate='none', augment='none', dropout='none', norm='none', fill='none', middle='none', loss='each', batch=None, seed=0, optimizer='SGD', own_loop=False, per_owner=0, of_owner=1, copies=1, schedule='', precision='', workers=0, clip='flat')
