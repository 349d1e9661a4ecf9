#!/bin/bash
# Serve the real driver if this machine has one, else a simulated node, said loudly.
set -eu
bin=$1
shift
state=${CARDWATCH_STATE_DIR:-$PWD/var}
if "$bin/python" -c 'import ctypes; ctypes.CDLL("libnvidia-ml.so.1")' 2>/dev/null; then
  echo "NVIDIA driver library found: serving the cards of this machine on http://localhost:9836/"
  exec "$bin/cardwatch" serve --state-dir "$state" "$@"
fi
echo "*** No NVIDIA driver library on this machine: serving a SIMULATED node with 8 cards"
echo "*** on http://localhost:9836/ (metrics: http://localhost:9836/metrics). Nothing on it is real."
exec "$bin/cardwatch" serve --backend sim --state-dir "$state" "$@"
