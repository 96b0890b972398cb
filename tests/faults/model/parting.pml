/*
 * How a connection ends by agreement and another one is made (uct_mp/PROTOCOL.md, "Handshake", "Unused and parked
 * connections"), for spin: two sides, each asks at any moment whether the connection may end, operations come at any moment,
 * datagrams are lost, doubled and overtaken.
 *
 * Modelled, with the names used there: the states of the handshake, transactions, incarnations, requests that cross;
 * questions and their numbers, the one verdict, `delivered`. Messages go over the data path, which recovery makes reliable:
 * in order, within their connection; acknowledgments come whenever they like.
 * Not modelled: paths, several peers, limits of connections, time: a repetition comes when nothing else can happen.
 *
 * Side 0 has the smaller uid. `said` and `got` are ghosts.
 */
#ifndef PARKS
#define PARKS 2 /* questions, over both sides */
#endif
#ifndef MESSAGES
#define MESSAGES 1 /* of each side */
#endif
#ifndef WRITES
#define WRITES 1 /* of each side: what has no number, and is seen here alone */
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#ifndef DOUBLES
#define DOUBLES 1
#endif

mtype = { CLOSED, REQUESTING, CONFIRMING, ACCEPTING, ESTABLISHED };
mtype = { request, reply, confirm, ready, refused, ended, known };

/* Datagrams to a side: kind; transaction, or number of a question; incarnation; void_through, delivered, or holds. */
chan news[2] = [2] of { mtype, byte, byte, byte };
/* Messages to a side: incarnation, number. */
chan wire[2] = [2] of { byte, byte };

byte parks = PARKS, losses = LOSSES, doubles = DOUBLES;

typedef Side {
    mtype state = CLOSED;
    bit server;
    byte incarnation, transaction, newest, seen; /* these last */
    byte next, acked, expected;                  /* of this connection */
    bit waiting, writing;                        /* a message is to be sent, a write is under way */
    byte written;
    bit retiring;
    byte asked, heard, delivered; /* `delivered`: what our question says */
    bit needed;                   /* our verdict */
    bit due;
    byte said, got;
};
Side s[2];

#define OTHER (1 - me)
#define IDLE (s[me].next == s[me].acked && !s[me].waiting && !s[me].writing)
#define LATE(t) (s[me].seen && t <= s[me].seen)

inline send(kind, x, y, z) {
    if
    :: nfull(news[OTHER]) -> news[OTHER]!kind(x, y, z)
    :: nfull(news[OTHER]) && doubles > 0 ->
        doubles--;
        news[OTHER]!kind(x, y, z);
        if
        :: nfull(news[OTHER]) -> news[OTHER]!kind(x, y, z)
        :: full(news[OTHER])
        fi
    :: losses > 0 -> losses--
    :: full(news[OTHER])
    fi
}

inline ask() { send(ended, s[me].asked, s[me].incarnation, s[me].delivered) }
inline send_request() { send(request, s[me].transaction, s[me].incarnation, 0) }
inline send_reply() { send(reply, s[me].transaction, s[me].incarnation, s[me].newest) }
inline send_confirm() { send(confirm, s[me].transaction, s[me].incarnation, 0) }

/* endings.cc: begin_anew(). Counting begins from zero. */
inline close() {
    assert(s[me].acked == s[me].next && !s[me].writing); /* nothing of ours is lost */
    s[me].state = CLOSED;
    s[me].next = 0;
    s[me].acked = 0;
    s[me].expected = 0;
    s[me].retiring = 0;
    s[me].asked = 0;
    s[me].heard = 0;
    s[me].delivered = 0
}

/* client.cc: start(). */
inline start() {
    s[me].newest++;
    s[me].transaction = s[me].newest;
    s[me].server = 0;
    s[me].state = REQUESTING;
    send_request()
}

/* server.cc: on_request(), accept(). */
inline on_request(t, i) {
    if
    :: s[me].state == ACCEPTING && s[me].transaction == t -> send_reply()
    :: !(s[me].state == ACCEPTING && s[me].transaction == t) && LATE(t)
    :: !LATE(t) && s[me].state == ESTABLISHED && s[me].retiring -> close() /* it has agreed; and it comes again */
    :: !LATE(t) && s[me].state == ESTABLISHED && !s[me].retiring -> assert(false) /* it has ended without us */
    :: !LATE(t) && s[me].state == REQUESTING && me == 0 /* ours counts */
    :: !LATE(t) && !(s[me].state == ACCEPTING && s[me].transaction == t) && s[me].state != ESTABLISHED &&
       !(s[me].state == REQUESTING && me == 0) ->
        if
        :: i > s[me].incarnation -> s[me].incarnation = i + 1
        :: else -> s[me].incarnation++
        fi;
        s[me].transaction = t;
        s[me].seen = t;
        s[me].server = 1;
        s[me].state = ACCEPTING;
        send_reply()
    fi
}

/* client.cc: on_reply(). */
inline on_reply(t, i, v) {
    if
    :: s[me].state == REQUESTING && t == s[me].transaction && i > s[me].incarnation ->
        s[me].incarnation = i;
        if
        :: v > s[me].seen -> s[me].seen = v
        :: else
        fi;
        s[me].state = CONFIRMING;
        send_confirm()
    :: else
    fi
}

/* server.cc: on_confirm(). */
inline on_confirm(t, i) {
    if
    :: s[me].server && s[me].transaction == t && s[me].incarnation == i && s[me].state == ACCEPTING ->
        s[me].state = ESTABLISHED;
        send(ready, t, i, 0)
    :: s[me].server && s[me].transaction == t && s[me].incarnation == i && s[me].state == ESTABLISHED -> send(ready, t, i, 0)
    :: else -> send(refused, t, i, 0)
    fi
}

inline on_ready(t, i) {
    if
    :: s[me].state == CONFIRMING && t == s[me].transaction && i == s[me].incarnation -> s[me].state = ESTABLISHED
    :: else
    fi
}

inline on_refused(t, i) {
    if
    :: s[me].state == CONFIRMING && t == s[me].transaction && i == s[me].incarnation ->
        s[me].newest++;
        s[me].transaction = s[me].newest;
        s[me].state = REQUESTING
    :: else
    fi
}

/* goodbye.cc: on_ended(); endings.cc: judge_leaver(). */
inline on_ended(n, i, d) {
    if
    :: s[me].incarnation == i && (s[me].state == ESTABLISHED || s[me].state == CONFIRMING) ->
        s[me].state = ESTABLISHED;
        if
        :: n == s[me].heard -> send(known, n, i, s[me].needed)
        :: n > s[me].heard ->
            assert(d <= s[me].next);
            if
            :: d > s[me].acked -> s[me].acked = d
            :: else
            fi;
            s[me].heard = n;
            s[me].needed = !(IDLE && d == s[me].next);
            send(known, n, i, s[me].needed);
            if
            :: !s[me].needed -> close()
            :: else
            fi
        :: n < s[me].heard
        fi
    :: else -> send(known, n, i, 0) /* we know of no such connection: it has ended here */
    fi
}

inline on_known(n, i, holds) {
    if
    :: s[me].state == ESTABLISHED && s[me].incarnation == i && s[me].retiring && n == s[me].asked ->
        s[me].retiring = 0;
        if
        :: !holds -> close()
        :: else
        fi
    :: else
    fi
}

/* What has been handled shall not make states differ. */
inline forget() { kind = 0; a = 0; b = 0; c = 0 }

proctype side(bit me) {
    mtype kind;
    byte a, b, c;
end:
    do
    /* operations */
    :: atomic { !s[me].waiting && s[me].said < MESSAGES -> s[me].waiting = 1 }
    :: atomic { s[me].waiting && s[me].state == CLOSED -> start() }
    :: atomic { s[me].waiting && s[me].state == ESTABLISHED && !s[me].retiring && nfull(wire[OTHER]) ->
        wire[OTHER]!s[me].incarnation, s[me].next;
        s[me].next++;
        s[me].said++;
        s[me].waiting = 0 }
    :: atomic { s[me].state == ESTABLISHED && !s[me].retiring && !s[me].writing && s[me].written < WRITES ->
        s[me].writing = 1;
        s[me].written++ }
    :: atomic { s[me].writing ->
        assert(s[OTHER].incarnation == s[me].incarnation && s[OTHER].state != CLOSED); /* else it is lost */
        s[me].writing = 0 }
    :: atomic { wire[me]?a, b ->
        assert(a == s[me].incarnation && (s[me].state == ESTABLISHED || s[me].state == CONFIRMING)); /* else it is lost */
        assert(b == s[me].expected);
        s[me].state = ESTABLISHED;
        s[me].expected++;
        s[me].got++;
        forget() }
    :: atomic { s[me].state == ESTABLISHED && s[OTHER].state != CLOSED && s[OTHER].incarnation == s[me].incarnation &&
        s[OTHER].expected > s[me].acked -> s[me].acked = s[OTHER].expected }

    /* a question */
    :: atomic { parks > 0 && s[me].state == ESTABLISHED && !s[me].retiring && IDLE -> parks--;
        s[me].retiring = 1;
        s[me].asked++;
        s[me].delivered = s[me].expected;
        ask() }

    /* repetitions */
    :: atomic { s[me].due ->
        s[me].due = 0;
        if
        :: s[me].state == ESTABLISHED && s[me].retiring -> ask()
        :: s[me].state == REQUESTING -> send_request()
        :: s[me].state == CONFIRMING -> send_confirm()
        :: else
        fi }

    /* news, in any order */
    :: atomic { news[me]?kind(a, b, c) ->
        if
        :: true
        :: nempty(news[me]) -> news[me]!kind(a, b, c); news[me]?kind(a, b, c) /* the next one first */
        fi;
        if
        :: kind == request -> on_request(a, b)
        :: kind == reply -> on_reply(a, b, c)
        :: kind == confirm -> on_confirm(a, b)
        :: kind == ready -> on_ready(a, b)
        :: kind == refused -> on_refused(a, b)
        :: kind == ended -> on_ended(a, b, c)
        :: kind == known -> on_known(a, b, c)
        fi;
        forget() }
    od
}

/* Time goes on when nothing else can happen. */
proctype clock() {
end:
    do
    :: atomic { timeout -> s[0].due = 1; s[1].due = 1 }
    od
}

init {
    atomic {
        run side(0);
        run side(1);
        run clock()
    }
}

#define TOGETHER (s[0].state == ESTABLISHED && s[1].state == ESTABLISHED && s[0].incarnation == s[1].incarnation && \
    !s[0].retiring && !s[1].retiring)
#define APART (s[0].state == CLOSED && s[1].state == CLOSED)

/* In the end every message has arrived, and both sides think the same. */
ltl returns { <> [] (s[0].got == MESSAGES && s[1].got == MESSAGES && (TOGETHER || APART)) }
