"""Flower carries the messages: its simulator for many virtual participants, its SuperLink for real.

========================  ====================================================================
``grid.GridEngine``       an :class:`~sfumato.federated.exchange.Engine` over Flower's Grid
``client.client_app``     a Flower ClientApp from a factory of participants
``simulation.simulate``   coordinator and participants on one machine, in Ray's processes
``deployment.serve``      the coordinator: a SuperLink with TLS and node keys, and one run
``deployment.join``       one participant: a node that answers with code of her own
``limits.Limits``         bytes, connections and seconds that the coordinator's door allows
========================  ====================================================================

Flower is a transport here and nothing else: what is private is so before it reaches this folder.
It needs ``pip install 'sfumato[flower]'``. Its interfaces move with every version, so the extra
pins one.

Importing this package switches off Flower's and Ray's telemetry and their look-outs for updates,
unless the environment says otherwise: Flower reads these names when it is first imported.
"""

from __future__ import annotations

import os

from sfumato.extras import require
from sfumato.federated.flower.quiet import QUIET

require("flwr")
for _name, _value in QUIET.items():
    os.environ.setdefault(_name, _value)
