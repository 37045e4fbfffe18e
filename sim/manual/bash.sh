
# CUR ENDING...: files that end in one of these; "*" any, "/" folders alone.
_spillway_files() {
    local cur=$1 file ending
    shift
    while IFS= read -r file; do COMPREPLY+=("$file/"); done < <(compgen -d -- "$cur")
    compopt -o filenames -o nospace 2>/dev/null
    for ending; do
        while IFS= read -r file; do
            [ -d "$file" ] && continue
            if [ "$ending" = '*' ] || [ "${file%".$ending"}" != "$file" ]; then COMPREPLY+=("$file"); fi
        done < <(compgen -f -- "$cur")
    done
    if [ ${#COMPREPLY[@]} -eq 1 ] && [ ! -d "${COMPREPLY[0]}" ]; then compopt +o nospace 2>/dev/null; fi
}

# CUR TEXT: words that begin so; the second line of TEXT has the endings of files.
_spillway_offer() {
    local cur=$1 words endings list
    { IFS= read -r words; IFS= read -r endings; } <<<"$2"
    while IFS= read -r list; do COMPREPLY+=("$list"); done < <(compgen -W "$words" -- "$cur")
    IFS=' ' read -ra list <<<"$endings"
    [ -z "$endings" ] || _spillway_files "$cur" "${list[@]}"
}

_spillway() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} name=${COMP_WORDS[1]} first=2 at=$COMP_CWORD
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        _spillway_offer "$cur" "$(_spillway_parts '') help --help --version"
        return
    fi
    if [ "$name" = help ]; then
        _spillway_offer "$cur" "$(_spillway_parts '') $(_spillway_topics)"
        return
    fi
    if [ -n "$(_spillway_parts "$name")" ]; then
        if [ "$COMP_CWORD" -eq 2 ]; then
            _spillway_offer "$cur" "$(_spillway_parts "$name") --help"
            return
        fi
        name="$name ${COMP_WORDS[2]}" first=3
    fi
    # bash cuts --scheme=dense:capacity_factor=1.25 at each = and :, so the option is a few words back
    while [ "$at" -gt "$first" ] && [[ ${COMP_WORDS[at]} != --* ]] && [[ $((COMP_CWORD - at)) -lt 6 ]]; do at=$((at - 1)); done
    local between=("${COMP_WORDS[@]:at + 1:COMP_CWORD - at - 1}") option=${COMP_WORDS[at]}
    [ "${between[0]}" = = ] && between=("${between[@]:1}")
    case $cur in = | :) between+=("$cur") cur='' ;; esac
    [ "${between[*]}" = = ] && between=()
    if [ "$at" -lt "$COMP_CWORD" ] && [[ " $(_spillway_options "$name") " == *" $option "* ]]; then
        if [ ${#between[@]} -eq 0 ]; then
            _spillway_offer "$cur" "$(_spillway_values "$name" "$option")"
            return
        elif [ ${#between[@]} -eq 2 ] && [ "${between[1]}" = : ] && [ "$option" = --scheme ]; then
            _spillway_offer "$cur" "$(_spillway_scheme_keys "${between[0]}")"
            compopt -o nospace 2>/dev/null
            return
        elif [ "$prev" = = ] || [ "$prev" = : ]; then
            return
        fi
    fi
    if [[ $cur == -* ]]; then
        _spillway_offer "$cur" "$(_spillway_options "$name") $(_spillway_flags "$name") --help --usage"
    else
        _spillway_offer "$cur" "$(_spillway_values "$name" '')"
    fi
}

complete -F _spillway spillway
