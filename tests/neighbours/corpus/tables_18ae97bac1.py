# Run from the project's root: python -m tests.neighbours.fuzz --script FILE
# Broken when it was found:
#   shape: [{'x': 'string'}, "SourceError: the data source failed while bounding contributions; its  ...
from tests.neighbours.tables import *

case = TableCase(source='arrow', columns=(Column(name='x', type='dictionary of string', cells=(b'', b'', b'', b'', b'', b'\xed\xa0\x80')),), victim=(5,), unit='x', rows=1, groups=None, relation='add-remove', questions=(Question(name='count', arguments=(), options=(), by=('x',), keys=None, private_keys=True, where=()),), types=(), first='')
