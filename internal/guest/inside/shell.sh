# The driver of a persistent bash. It begins with the control pipe as standard input and the pipe of answers as standard output. One
# command is a line of fixed length (see header in interpproc.go): its number, its exec id, whether it has input, and a seed for
# $RANDOM or "-". Its text is in the file "code", its streams are FIFOs named by the number. An answer is a mark and three fields, all
# NUL-terminated: number, status, directory. What else comes on the pipe of answers, such as from a DEBUG trap, is ignored.
# $1 is the directory of all this, $2 the directory to begin in, $3 a file with variables to begin with, $4 the length of a line.
#
# System calls are what a command costs here, so that there are few: a line of fixed length is one read (bash reads others byte by
# byte), and standard input and output are in place for the driver before a command comes.
builtin cd -- "$2" 2>/dev/null
if [[ -n $3 ]]; then builtin source "$3"; fi
__perdure_dir=$1 __perdure_length=$4
builtin set --
# An interrupt leaves the script, through all its functions and loops, and keeps the shell. Between scripts it does nothing.
__perdure_busy= __perdure_int=
__perdure_trap='if [[ -n $__perdure_busy ]]; then __perdure_int=1; builtin set -T; builtin trap "builtin return 130" DEBUG; builtin return 130; fi'
builtin trap "$__perdure_trap" INT
{
exec 250<&10 # where bash keeps the input from before this block, marked close-on-exec; so is the copy, and no program sees it
while :; do
  builtin read -r -N "$__perdure_length" -u 250 __perdure_h || { if [[ $? -gt 128 ]]; then builtin continue; else builtin break; fi; }
  __perdure_n=${__perdure_h%% *} __perdure_h=${__perdure_h#* }
  PERDURE_EXEC=${__perdure_h%% *} __perdure_h=${__perdure_h#* }
  builtin export PERDURE_EXEC
  if [[ ${__perdure_h#* } != -* ]]; then
    __perdure_seed=${__perdure_h#* }
    RANDOM=${__perdure_seed%% *}
  fi
  if [[ $__perdure_h == 1* ]]; then
    {
      builtin printf '\0perdure\0%s\0opened\0\0' "$__perdure_n"
      __perdure_busy=1
      builtin source "$__perdure_dir/code" <&249 >"$__perdure_dir/$__perdure_n.out" 2>"$__perdure_dir/$__perdure_n.err" 249<&-
      __perdure_st=$? __perdure_busy=
    } 249<"$__perdure_dir/$__perdure_n.in"
  else
    __perdure_busy=1
    builtin source "$__perdure_dir/code" >"$__perdure_dir/$__perdure_n.out" 2>"$__perdure_dir/$__perdure_n.err"
    __perdure_st=$? __perdure_busy=
  fi
  if [[ -n $__perdure_int ]]; then
    builtin trap - DEBUG
    builtin set +T
    builtin trap - INT # for bash still believes to be in the handler that was left
    builtin trap "$__perdure_trap" INT
    __perdure_int=
  fi
  builtin printf '\0perdure\0%s\0%s\0%s\0' "$__perdure_n" "$__perdure_st" "$PWD"
  # For the next shell, should this one end. Nobody waits for it; two files take turns, so that one of them is always whole.
  { builtin declare -px; builtin printf '\0%s\0' "$__perdure_n"; } >|"$__perdure_dir/exports.$((__perdure_n % 2))"
done
} </dev/null
