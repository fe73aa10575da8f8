#!/bin/sh
# Runs a command until it ends by itself or standard input has a line or ends, which it does when the
# process that started this script ends in whatever way. Removes a directory afterwards.
#   supervise.sh SIGNAL DIRECTORY LOG COMMAND [ARGUMENT…]
# SIGNAL ends the command. DIRECTORY is removed; an empty text removes none. LOG is what the command
# prints. The exit status is the command's.
signal=$1 directory=$2 log=$3
shift 3
exec 3<&0 </dev/null
"$@" >"$log" 2>&1 3<&- &
command=$!
{
  read -r _ <&3
  kill -s "$signal" "$command"
} 2>/dev/null &
watcher=$!
exec 3<&-
wait "$command"
status=$?
kill "$watcher" 2>/dev/null
[ -z "$directory" ] || rm -rf "$directory"
exit "$status"
