# The driver of a persistent bash. It takes one line per command from descriptor 250, runs the script file that the line names with
# streams of its own, and answers on 251 with NUL-terminated fields: number, status, directory, exported variables.
# $1 is the directory of scripts and FIFOs, $2 the directory to begin in, $3 a file with variables to begin with.
builtin cd -- "$2" 2>/dev/null
if [[ -n $3 ]]; then builtin source "$3"; fi
__perdure_dir=$1
builtin set --
# An interrupt leaves the script, through all its functions and loops, and keeps the shell. Between scripts it does nothing.
__perdure_busy= __perdure_int=
__perdure_trap='if [[ -n $__perdure_busy ]]; then __perdure_int=1; builtin set -T; builtin trap "builtin return 130" DEBUG; builtin return 130; fi'
builtin trap "$__perdure_trap" INT
while :; do
  if ! IFS=' ' builtin read -r -u 250 __perdure_n PERDURE_EXEC __perdure_in; then
    if [[ $? -gt 128 ]]; then builtin continue; fi
    builtin break
  fi
  builtin export PERDURE_EXEC
  if [[ $__perdure_in == 1 ]]; then
    {
      builtin printf '%s\0opened\0\0\0' "$__perdure_n" >&251
      __perdure_busy=1
      builtin source "$__perdure_dir/$__perdure_n" <&249 >"$__perdure_dir/$__perdure_n.out" 2>"$__perdure_dir/$__perdure_n.err" 249<&- 250<&- 251>&-
      __perdure_st=$? __perdure_busy=
    } 249<"$__perdure_dir/$__perdure_n.in"
  else
    __perdure_busy=1
    builtin source "$__perdure_dir/$__perdure_n" </dev/null >"$__perdure_dir/$__perdure_n.out" 2>"$__perdure_dir/$__perdure_n.err" 250<&- 251>&-
    __perdure_st=$? __perdure_busy=
  fi
  if [[ -n $__perdure_int ]]; then
    builtin trap - DEBUG
    builtin set +T
    builtin trap - INT # for bash still believes to be in the handler that was left
    builtin trap "$__perdure_trap" INT
    __perdure_int=
  fi
  { builtin printf '%s\0%s\0%s\0' "$__perdure_n" "$__perdure_st" "$PWD"; builtin declare -px; builtin printf '\0'; } >&251
done
