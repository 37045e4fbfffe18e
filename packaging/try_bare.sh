#!/usr/bin/env bash
# Tries the Debian packages and the wheel on a bare Debian 12: debootstrap makes one in build/bare, where they are installed,
# used and removed again, and where nothing may be left. Asks for root and for Debian's archive and PyPI, as this machine has
# them; takes about three minutes. Before: ./run deb && ./run wheel.
#
# packaging/try_bare.sh [deb | wheel | demo | docker]...    default: deb and wheel. demo runs ./run demo as the first command;
# docker carries out the Dockerfile without Docker: every RUN, COPY and WORKDIR line, each FROM on a bare Debian of its own. Each
# of these two builds the program and takes a few minutes more.
set -euo pipefail
cd "$(dirname "$0")/.."
bare=$PWD/build/bare
root=$bare/root
mkdir -p "$bare"
[ -s "$bare/base.tar" ] || {
    rm -rf "$root"
    debootstrap --variant=minbase bookworm "$root" "${SPW_DEBIAN:-http://deb.debian.org/debian}" >"$bare/debootstrap.log"
    tar -C "$root" -cf "$bare/base.tar" .
}
leave() { ! mountpoint -q "$root/proc" || umount "$root/proc"; }
trap leave EXIT
fresh() { # a root without anything of ours
    leave
    rm -rf "$root"
    mkdir -p "$root"
    tar -C "$root" -xf "$bare/base.tar"
    cp /etc/resolv.conf /etc/hosts "$root/etc/"
    cp -L "${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}" "$root/root/pypi.crt" # how this machine reaches PyPI
    mount -t proc proc "$root/proc"
    inside apt-get update -qq
}
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
    PIP_CERT=/root/pypi.crt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 "$@"; }
get() { inside apt-get install -y -qq --no-install-recommends "$@" >"$bare/apt.log" 2>&1 || { cat "$bare/apt.log" >&2; exit 1; }; }
files() { (cd "$root" && find . -xdev -path ./proc -prune -o \( -type f -o -type l -o -type d \) -print) |
    grep -Ev '^\./(var/(lib/(dpkg|apt)|cache/(apt|debconf|ldconfig|man)|log)|tmp|root)(/|$)' | sort; }
fail() { echo "try_bare: $1" >&2; exit 1; }

try_deb() {
    fresh
    get man-db bash-completion
    files >"$bare/before"
    cp build/deb/*.deb "$root/tmp/"
    get "/tmp/$(basename build/deb/spillway_*.deb)"
    [ ! -x "$root/usr/bin/cc" ] || fail "there is a compiler, so this is no bare Debian"
    local data=/usr/share/spillway
    inside spillway replay $data/traces/training_aux_e64_slice.h5 --job $data/jobs/scratch-moe-e64.yaml --each-step >"$bare/said"
    sed "s|$data/traces/|traces/data/|; s|$data/jobs/|sim/jobs/|" "$bare/said" >"$bare/said.here"
    build/deb/tree/usr/bin/spillway replay traces/data/training_aux_e64_slice.h5 --job sim/jobs/scratch-moe-e64.yaml --each-step |
        cmp - "$bare/said.here" || fail "it says something else than here"
    for page in spillway spillway-replay spillway-trace-import spillway-job; do
        inside man "$page" | grep -q "^NAME" || fail "man $page"
    done
    inside bash -c '. /usr/share/bash-completion/bash_completion; _completion_loader spillway; COMP_WORDS=(spillway plan --remat sel)
        COMP_CWORD=3; compopt() { :; }; _spillway; [ "${COMPREPLY[*]}" = selective ]' || fail "bash completes nothing"
    get "/tmp/$(basename build/deb/libspillway0.3_*.deb)" "/tmp/$(basename build/deb/libspillway-dev_*.deb)" gcc libc6-dev pkg-config
    cp tests/library/example/example.c "$root/tmp/"
    inside sh -c 'cd /tmp && cc example.c -o example $(pkg-config --cflags --libs spillway) &&
        ./example /usr/share/spillway/traces/training_aux_e64_slice.h5 /usr/share/spillway/jobs/scratch-moe-e64.yaml' >"$bare/example"
    grep -q . "$bare/example" || fail "the example in C says nothing"
    inside apt-get purge -y -qq --auto-remove spillway libspillway-dev libspillway0.3 gcc libc6-dev pkg-config >"$bare/apt.log" 2>&1
    inside apt-get check -qq
    files >"$bare/after"
    diff "$bare/before" "$bare/after" >"$bare/left" || fail "removed, but this is left: $(cat "$bare/left")"
    echo "bare Debian 12: packages installed, used and removed; nothing is left"
}

try_wheel() {
    fresh
    get python3-venv
    cp build/wheel/repaired/*.whl tests/library/try_wheel.py traces/data/training_aux_e64_slice.h5 sim/jobs/scratch-moe-e64.yaml "$root/tmp/"
    [ ! -x "$root/usr/bin/cc" ] && [ ! -x "$root/usr/bin/gcc" ] || fail "there is a compiler, so this is no bare Debian"
    inside python3 -m venv /tmp/venv
    inside /tmp/venv/bin/pip install -q "/tmp/$(basename build/wheel/repaired/*.whl)[figures,xarray]"
    inside /tmp/venv/bin/python /tmp/try_wheel.py /tmp/training_aux_e64_slice.h5 /tmp/scratch-moe-e64.yaml /tmp/memory.png
    inside /tmp/venv/bin/python -c 'import spillway_moe
print(spillway_moe.replay("/tmp/training_aux_e64_slice.h5", "/tmp/scratch-moe-e64.yaml").rows[["scheme", "drops.fraction"]])'
    inside /tmp/venv/bin/spillway replay /tmp/training_aux_e64_slice.h5 --job /tmp/scratch-moe-e64.yaml --scheme gmm >/dev/null
    echo "bare Debian 12: the wheel works in an empty virtual environment, without a compiler"
}

try_demo() {
    fresh
    mkdir "$root/source"
    git archive HEAD | tar -C "$root/source" -xf -
    inside sh -c 'cd /source && ./run demo' >"$bare/demo.log" 2>&1 </dev/null || { tail -40 "$bare/demo.log" >&2; fail "./run demo"; }
    [ -s "$root/source/build/deepseek_report.html" ] || fail "./run demo wrote no report"
    echo "bare Debian 12: ./run demo works as the first command"
}

# What the lines of the Dockerfile ask for, one a line, those that go on put together.
steps() { sed -e ':more' -e '/\\$/{N;s/\\\n *//;b more}' Dockerfile; }

try_docker() {
    local stage="" folder=/ kind rest from to
    while read -r kind rest; do
        case $kind in
        FROM)
            [ -z "$stage" ] || { rm -rf "$bare/stage" && mkdir "$bare/stage" && cp -r "$root/source" "$bare/stage/"; }
            stage=$rest folder=/
            fresh
            ;;
        COPY)
            to=${rest##* } from=${rest% *}
            mkdir -p "$root$to"
            if [ "$from" = . ]; then
                git archive HEAD | tar -C "$root$to" -xf -
            else # shellcheck disable=SC2086 # a pattern
                cp $bare/stage${from#--from=build } "$root$to"
            fi
            ;;
        WORKDIR)
            folder=$rest
            mkdir -p "$root$folder"
            ;;
        RUN) inside sh -c "cd $folder && $rest" >"$bare/run.log" 2>&1 </dev/null || { tail -40 "$bare/run.log" >&2; fail "RUN $rest"; } ;;
        esac
    done < <(steps)
    inside spillway model deepseek-v3 >/dev/null
    echo "Dockerfile: every line carried out on a bare Debian 12"
}

for what in "${@:-deb wheel}"; do for part in $what; do "try_$part"; done; done
