#!/bin/bash
# Record the captures of simulated cards anew. Run from the repository root.
set -eu
out=tests/captures
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

record() {
  printf '%s\n' "$2" >"$work/$1.yaml"
  .venv/bin/cardwatch capture --backend sim --scenario "$work/$1.yaml" --raw --interval 1s \
    --state-dir "$work" --passes "${3:-1}" "$out/sim-$1.jsonl"
}

record h100 '{driver: 580.95.05, cards: [{model: H100, count: 2}]}'
record a100-old-driver '{driver: 470.57.02, cards: [{model: A100, count: 1}]}'
record a100-mig '{driver: 580.95.05, cards: [{model: A100}], faults: [{fault: mig, gpu: 0, instances: [3g.40gb, 2g.20gb, 1g.10gb]}]}'
record a100-ecc-off '{driver: 580.95.05, cards: [{model: A100, ecc: false}]}'
record b200 '{driver: 580.95.05, cards: [{model: B200, count: 2}]}'
record l40s '{driver: 575.51.03, cards: [{model: L40S}]}'
record t4 '{driver: 535.54.03, cards: [{model: T4}]}'
record rtx4090 '{driver: 580.95.05, cards: [{model: RTX4090}]}'
record gb10 '{driver: 580.95.05, cards: [{model: GB10}]}'
