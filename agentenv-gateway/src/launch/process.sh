# Runs a command for as long as its standard input stays open, whoever held the other end and however that ended. Then
# everything that the command started gets SIGTERM, and SIGKILL after a while.
#
# Arguments: how many tenths of a second that while is, the command and its arguments. Exits as the command did.

patience=$1
shift
exec 3<&0 </dev/null
# Caught and not ignored: the command would go on ignoring them.
trap : HUP INT TERM
"$@" 3<&- &
command=$!
# Its own words on how the command ended would look like the command's.
exec 2>/dev/null

(
    trap '' HUP INT TERM
    while read -r _ <&3; do :; done
    kill -TERM -$$
    while kill -0 $$ && [ "$patience" -gt 0 ]; do
        sleep 0.1
        patience=$((patience - 1))
    done
    kill -KILL -$$
) >/dev/null 2>&1 &

wait "$command"
status=$?
# A signal ends the waiting before the command has ended.
while [ $status -gt 128 ] && kill -0 "$command"; do
    wait "$command"
    status=$?
done
exit $status
