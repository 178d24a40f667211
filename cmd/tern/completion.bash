# bash completion of tern: programs, verbs and options, as their own tables have them.
_tern() {
    local cur=${COMP_WORDS[COMP_CWORD]} name=${COMP_WORDS[1]} full words program
    if [ "$COMP_CWORD" = 1 ]; then
        words=help
        for program in "$(dirname "$(command -v tern)")"/tern-*; do words="$words ${program##*/tern-}"; done
    elif [ "$name" = help ] && [ "$COMP_CWORD" = 2 ]; then
        words=$(tern --help-topics 2>/dev/null | sed 's/^tern-//; s/\.[0-9]$//')
        for program in "$(dirname "$(command -v tern)")"/tern-*; do words="$words ${program##*/tern-}"; done
    else
        full="tern $name"
        words=$(tern "$name" --help-words 2>/dev/null)
        if [ "$COMP_CWORD" -gt 2 ] && grep -qxF "$full"$'\t'"${COMP_WORDS[2]}" <<<"$words"; then
            full="$full ${COMP_WORDS[2]}"
        fi
        words=$(awk -F '\t' -v f="$full" '$1 == f { print $2 }' <<<"$words")
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}
complete -o default -F _tern tern
