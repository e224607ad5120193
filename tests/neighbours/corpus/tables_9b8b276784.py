# Run from the project's root: python -m tests.neighbours.fuzz --script FILE
# Broken when it was found:
#   shape: [{'person': 'int64', 'x': 'uint64', 'city': 'binary', 'm': 'binary'}, {'cells': [], 'keys ...
from tests.neighbours.tables import *

case = TableCase(source='parquet', columns=(Column(name='person', type='int64', cells=(0, 1, 2)), Column(name='x', type='uint64', cells=(18446744073709551615, 18446744073709551615, 18446744073709551615)), Column(name='city', type='binary', cells=(b'', b'', b'')), Column(name='m', type='binary', cells=(b'', b'', b''))), victim=(0,), unit='person', rows=1, groups=None, relation='add-remove', questions=(Question(name='count', arguments=(), options=(), by=('person',), keys=None, private_keys=True, where=('"person" IS NULL',)), Question(name='most_common', arguments=('x',), options=(('keys', (18446744073709551615,)),), by=(), keys=None, private_keys=False, where=('"person" IS NULL',))), types=(), first='')
