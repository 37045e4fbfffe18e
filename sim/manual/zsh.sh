
_spillway() {
    local name=${words[2]} skip=1
    if (( CURRENT == 2 )); then
        _spillway_describe ''
        _values 'and' help --help --version 2>/dev/null
        return
    fi
    if [[ $name == help ]]; then
        _spillway_describe ''
        _spillway_topics
        return
    fi
    if _spillway_has_parts $name; then
        if (( CURRENT == 3 )); then
            _spillway_describe $name
            return
        fi
        name="$name ${words[3]}"
        skip=2
    fi
    shift $skip words
    (( CURRENT -= skip ))
    _spillway_arguments $name
}

_spillway "$@"
