# Completion for bash: source <(perdure completion bash). It needs nothing besides bash.
_perdure() {
    local rest=$COMP_LINE words=() i word out line directive=0 cur prefix=
    # Bash splits words at : and @ too. What stands in the line without a blank before it belongs to the word before.
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ $i -gt 0 && -n $rest && $rest != [[:space:]]* ]]; then
            words[${#words[@]} - 1]+=$word
        else
            rest=${rest#"${rest%%[![:space:]]*}"}
            words+=("$word")
        fi
        rest=${rest#"$word"}
    done
    cur=${words[${#words[@]} - 1]}
    COMPREPLY=()
    out=$("${words[0]}" __completeNoDesc "${words[@]:1}" 2>/dev/null) || return
    [[ $cur == -*=* ]] && cur=${cur#*=} # only the value is offered
    # Of a word that bash splits, it replaces only the last part, which an @ belongs to and the others do not.
    [[ $cur == *[:=]* ]] && prefix=${cur%"${cur##*[:=]}"}
    [[ ${cur#"$prefix"} == *@* ]] && prefix=${cur%"@${cur##*@}"}
    while IFS= read -r line; do
        case $line in
            :[0-9]*) directive=${line#:} ;;
            _activeHelp_*) ;;
            "$cur"*) COMPREPLY+=("$(printf %q "${line#"$prefix"}")") ;;
        esac
    done <<<"$out"
    ((directive & 1)) && COMPREPLY=() && return
    ((directive & 2)) && compopt -o nospace
    ((directive & 4)) || compopt -o default
}
complete -F _perdure perdure
