# Run from the project's root: python -m tests.neighbours.fuzz --script FILE
# Broken when it was found:
#   shape: [{'x': 'binary', 'city': 'string', 'm': 'binary'}, "SourceError: the data source failed w ...
from tests.neighbours.tables import *

case = TableCase(source='arrow', columns=(Column(name='x', type='binary', cells=(b'',)), Column(name='city', type='dictionary of string', cells=(b'\xed\xa0\x80',)), Column(name='m', type='binary', cells=(b'',))), victim=(0,), unit='x', rows=1, groups=None, relation='add-remove', questions=(Question(name='count', arguments=(), options=(), by=(), keys=None, private_keys=False, where=()),), types=(), first='')
