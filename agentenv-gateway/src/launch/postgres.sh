# Runs a Postgres for as long as its standard input stays open, whoever held the other end and however that ended.
#
# Arguments: the folder that holds everything, initdb, postgres, and the server's own arguments.
# A line on standard input says that the server has answered: from then on it is started again when it dies.
# Standard output: a line `initialised`, `restarting` whenever it is, and at the end `log …` lines and `stopped`.
# The folder is removed at the end.

folder=$1
initdb=$2
postgres=$3
shift 3
trap '' HUP INT PIPE TERM
exec 3<&0 </dev/null

finish() {
    if [ ! -e "$folder/closing" ]; then
        tail -n 12 "$folder/log" | sed 's/^/log /'
    fi
    # The server's last processes may still be leaving.
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        rm -rf "$folder" && break
        sleep 0.1
    done 2>/dev/null
    echo stopped
    exit
}

"$initdb" --pgdata="$folder/data" --username=agentenv --pwfile="$folder/password" --encoding=UTF8 --locale=C \
    --auth-local=trust --auth-host=scram-sha-256 --no-sync --no-instructions >"$folder/log" 2>&1 3<&- || finish
echo initialised

(
    # Blocks until there is a line, then until there is nobody left to send one.
    if read -r _ <&3; then
        : >"$folder/ready"
        while read -r _ <&3; do :; done
    fi
    : >"$folder/closing"
    # Nothing that it holds is kept, so it need not be written.
    # Asked again, since a server that is about to begin, or only just began, does not hear it yet.
    for signal in QUIT QUIT QUIT QUIT QUIT QUIT QUIT QUIT QUIT QUIT KILL; do
        kill -"$signal" "$(cat "$folder/pid")" || kill -0 $$ || break
        sleep 0.2
    done
    # Whoever killed the shell that waits for the server leaves the rest to this one.
    kill -0 $$ || rm -rf "$folder"
) >/dev/null 2>&1 &

restarts=0
while [ ! -e "$folder/closing" ]; do
    "$postgres" -D "$folder/data" "$@" >>"$folder/log" 2>&1 3<&- &
    server=$!
    echo "$server" >"$folder/pid"
    wait "$server"
    [ -e "$folder/closing" ] && break
    [ -e "$folder/ready" ] || break
    restarts=$((restarts + 1))
    [ "$restarts" -gt 100 ] && break
    echo restarting
    sleep 0.1
done
finish
