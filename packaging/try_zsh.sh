#!/usr/bin/env zsh
# try_zsh.sh FOLDER WORD...: what zsh offers behind these words, by the completion _spillway in FOLDER; a terminal is made for it.
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PROMPT= ; fpath=($1 \$fpath); autoload -U compinit; compinit -u -D; setopt nobeep; stty cols 200; zstyle ':completion:*' list-prompt ''; LISTMAX=1000; print -r -- REA''DY"
zpty -r -m shell line '*READY*'
zpty -w -n shell "spillway ${*[2,-1]}"$'\t\t'
sleep 1.5
zpty -w -n shell $'\C-u'"print -r -- DO''NE"$'\n'
zpty -r -m shell line '*DONE*'
print -r -- "$line" | sed 's/\x1b\[[0-9;?]*[a-zA-Z]//g' | tr -d '\r\a'
zpty -d shell
