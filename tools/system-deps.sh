#!/bin/bash
# Install the system packages that the tests use: as root on Debian or Ubuntu only,
# under a policy that starts no service. Elsewhere name what is missing.
set -eu

# command|package|what is not tested without it
needs='promtool|prometheus|exposition against promtool, scrapes by a real Prometheus
cc|build-essential|everything that runs on the C stand-in of the driver library
openssl|openssl|TLS'

missing=()
while IFS='|' read -r command package what; do
  if ! command -v "$command" >/dev/null 2>&1; then
    missing+=("$package")
    echo "deps: $command is missing (package $package): without it not tested: $what"
  fi
done <<<"$needs"
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "${DEPS:-1}" = 0 ] || [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
  echo "deps: not installed here; tests that need them are skipped by name. On Debian or Ubuntu:"
  echo "deps:   sudo apt-get install --no-install-recommends ${missing[*]}"
  exit 0
fi

policy=/usr/sbin/policy-rc.d
made_policy=
if [ ! -e $policy ]; then
  printf '#!/bin/sh\nexit 101\n' >$policy
  chmod 755 $policy
  made_policy=1
fi
trap '[ -z "$made_policy" ] || rm -f "$policy"' EXIT

echo "deps: installing ${missing[*]} with apt; no service is started"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
