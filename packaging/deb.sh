#!/usr/bin/env bash
# Builds the Debian packages into build/deb and tries what can be tried without installing them: lintian, troff, the program, what
# bash and zsh offer. ./run deb calls it; packaging/try_bare.sh installs them on a bare Debian.
set -euo pipefail
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT
{ cmake --preset deb && cmake --build --preset deb; } >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
cd build/deb
rm -rf -- *.deb tree
cpack >"$log" 2>&1 || { cat "$log" >&2; exit 1; }

# Not asked of a package that goes into no archive: a bug number and a mail address of a maintainer. CPack writes the calls of
# ldconfig, which Debian has by trigger since; the trigger is there, too.
lintian --tag-display-limit 0 --fail-on error,warning --allow-root \
    --suppress-tags initial-upload-closes-no-bugs,bogus-mail-host,bogus-mail-host-in-debian-changelog,maintscript-calls-ldconfig -- *.deb

for deb in *.deb; do dpkg-deb -x "$deb" tree; done
for page in tree/usr/share/man/man?/*.gz; do
    zcat "$page" | groff -man -Tutf8 -ww 2>&1 >/dev/null | tee -a "$log.troff"
done
[ ! -s "$log.troff" ] || { rm "$log.troff"; echo "a manual page has mistakes" >&2; exit 1; }
rm -f "$log.troff"
share=$PWD/tree/usr/share
[ "$(tree/usr/bin/spillway --version)" = "$(sed -n 's/^project(spillway VERSION \([0-9.]*\).*/spillway \1/p' ../../CMakeLists.txt)" ]
tree/usr/bin/spillway replay "$share/spillway/traces/training_aux_e64_slice.h5" --job "$share/spillway/jobs/scratch-moe-e64.yaml" >"$log"
grep -q '^gmm-deepep ' "$log"

# What zsh offers; the test `manual` asks bash.
cd "$share/spillway/traces"
offers() { zsh ../../../../../../../packaging/try_zsh.sh "$share/zsh/vendor-completions" "$1" >"$log" && grep -q -- "$2" "$log"; }
offers 'trace i' 'info .*-- shape'
offers 'plan --format ' 'csv *json *table'
offers 'replay ' training_aux_e64_slice.h5
offers 'plan --model=mixtral-8x' 'mixtral-8x22b *mixtral-8x7b'
cd - >/dev/null
ls -l -- *.deb
