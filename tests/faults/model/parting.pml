/*
 * How a connection ends by agreement and another one is made (uct_mp/PROTOCOL.md, "Handshake", "Unused and parked
 * connections"), for spin: two sides, each asks at any moment whether the connection may end, operations come at any moment,
 * datagrams are lost, doubled and overtaken.
 *
 * Modelled, with the names used there: the states of the handshake, transactions, incarnations, requests that cross;
 * questions and their numbers, the one verdict, `delivered`; secrets, and what a request shows of them. Messages go over the
 * data path, which recovery makes reliable: in order, within their connection; acknowledgments come whenever they like.
 * An intruder sends anything in either side's name, with any number, but knows no secret. It comes after the first connection.
 * Not modelled: paths, several peers, limits of connections, time: a repetition comes when nothing else can happen.
 *
 * Side 0 has the smaller uid. `said` and `got` are ghosts. Secrets are counted, by the side that has chosen them.
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
#ifndef LIES
#define LIES 1 /* of the intruder */
#endif
#define NOBODY 99  /* the intruder's nonce */
#define RANDOM 100 /* a question's nonce, which the intruder does not know */

mtype = { CLOSED, REQUESTING, CONFIRMING, ACCEPTING, ESTABLISHED };
mtype = { request, reply, confirm, ready, refused, ended, known, ping, pong };

/* Datagrams to a side: kind; transaction, or number of a question; incarnation, or current; void_through, delivered, or holds;
   secret; nonce. */
chan news[2] = [2] of { mtype, byte, byte, byte, byte, byte };
/* Messages to a side: incarnation, number. */
chan wire[2] = [2] of { byte, byte };

byte parks = PARKS, losses = LOSSES, doubles = DOUBLES, lies = LIES;

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
    byte secrets;                 /* chosen so far */
    byte own, theirs;             /* of this connection, or of the handshake under way */
    byte held_own, held_theirs;   /* of the latest that was established */
    byte before_seen, before;     /* what accepting has replaced: seen, incarnation */
    bit parked;
    byte question;                /* for a request that shows no secret; 0: none */
    byte questions;
    bit disowned;                 /* the peer does not hold what a request is to replace */
    bit due;
    byte said, got;
};
Side s[2];

#define OTHER (1 - me)
#define IDLE (s[me].next == s[me].acked && !s[me].waiting && !s[me].writing)
#define VOID(t, by) (by && t <= by)
#define LATE(t) ((s[me].state == ACCEPTING && VOID(t, s[me].before_seen)) || (s[me].state != ACCEPTING && VOID(t, s[me].seen)))
#define SHOWS(x) ((x && x == s[me].own) || (s[me].parked && x && x == s[me].held_own)) /* inbox.h: shows_secret() */
#define PROVED(t, x, y) ((x && x == s[me].held_own) || (s[me].state == ACCEPTING && y == s[me].theirs && t > s[me].seen))
#define CURRENT (s[me].state == ESTABLISHED || s[me].state == CONFIRMING || s[me].state == ACCEPTING)

inline send(k, p, q, r, shown, nonce) {
    if
    :: nfull(news[OTHER]) -> news[OTHER]!k(p, q, r, shown, nonce)
    :: nfull(news[OTHER]) && doubles > 0 ->
        doubles--;
        news[OTHER]!k(p, q, r, shown, nonce);
        if
        :: nfull(news[OTHER]) -> news[OTHER]!k(p, q, r, shown, nonce)
        :: full(news[OTHER])
        fi
    :: losses > 0 -> losses--
    :: full(news[OTHER])
    fi
}

inline ask() { send(ended, s[me].asked, s[me].incarnation, s[me].delivered, s[me].theirs, RANDOM) }
inline send_request() { send(request, s[me].transaction, s[me].incarnation, 0, s[me].held_theirs, s[me].own) }
inline send_reply() { send(reply, s[me].transaction, s[me].incarnation, s[me].newest, s[me].theirs, s[me].own) }
inline send_confirm() { send(confirm, s[me].transaction, s[me].incarnation, 0, s[me].theirs, s[me].own) }
inline send_ping() {
    if
    :: CURRENT -> send(ping, s[me].question, 1, 0, s[me].theirs, RANDOM)
    :: else -> send(ping, s[me].question, 0, 0, s[me].held_theirs, RANDOM)
    fi
}

inline choose_secret() {
    s[me].secrets++;
    s[me].own = s[me].secrets
}

/* states.cc: set(). */
inline set(to) {
    s[me].state = to;
    s[me].question = 0;
    s[me].disowned = 0;
    if
    :: to == ESTABLISHED ->
        s[me].parked = 0;
        s[me].held_own = s[me].own;
        s[me].held_theirs = s[me].theirs;
        s[me].before_seen = 0;
        s[me].before = 0
    :: to == CLOSED -> s[me].own = s[me].held_own; s[me].theirs = s[me].held_theirs
    :: to == REQUESTING -> s[me].theirs = s[me].held_theirs
    :: else
    fi
}

/* endings.cc: begin_anew(). Counting begins from zero. */
inline close() {
    assert(s[me].acked == s[me].next && !s[me].writing); /* nothing of ours is lost */
    set(CLOSED);
    s[me].parked = 1;
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
    choose_secret();
    set(REQUESTING);
    send_request()
}

/* server.cc: on_request(), lets_go(), accept(). */
inline on_request(t, i, x, y) {
    if
    :: s[me].state == ACCEPTING && s[me].transaction == t && y == s[me].theirs -> send_reply()
    :: !(s[me].state == ACCEPTING && s[me].transaction == t && y == s[me].theirs) && LATE(t)
    :: !LATE(t) && s[me].state == ESTABLISHED && s[me].retiring && PROVED(t, x, y) -> close() /* it has agreed; and it comes again */
    :: !LATE(t) && s[me].state == ESTABLISHED && !s[me].retiring && PROVED(t, x, y) -> assert(false) /* it has ended without us */
    :: !LATE(t) && s[me].state == REQUESTING && me == 0 /* ours counts */
    :: !LATE(t) && !(s[me].state == ACCEPTING && s[me].transaction == t && y == s[me].theirs) &&
       !(s[me].state == REQUESTING && me == 0) && !PROVED(t, x, y) &&
       (s[me].held_own || s[me].state == CONFIRMING || s[me].state == ACCEPTING) && !s[me].disowned ->
        if
        :: !s[me].question -> s[me].questions++; s[me].question = s[me].questions
        :: else
        fi;
        send_ping()
    :: !LATE(t) && !(s[me].state == ACCEPTING && s[me].transaction == t && y == s[me].theirs) &&
       !(s[me].state == REQUESTING && me == 0) && !(s[me].state == ESTABLISHED && PROVED(t, x, y)) &&
       (PROVED(t, x, y) || !(s[me].held_own || s[me].state == CONFIRMING || s[me].state == ACCEPTING) || s[me].disowned) ->
        assert(y != NOBODY); /* nobody else is let in */
        if
        :: s[me].state == ACCEPTING -> s[me].incarnation = s[me].before
        :: else -> s[me].before = s[me].incarnation; s[me].before_seen = s[me].seen
        fi;
        if
        :: i > s[me].incarnation -> s[me].incarnation = i + 1
        :: else -> s[me].incarnation++
        fi;
        choose_secret();
        s[me].theirs = y;
        s[me].transaction = t;
        s[me].seen = t;
        s[me].server = 1;
        set(ACCEPTING);
        send_reply()
    fi
}

/* question.cc: on_ping(), on_pong(). */
inline on_ping(n, current, x, y) {
    if
    :: (CURRENT || s[me].state == REQUESTING) && x == s[me].own -> send(pong, n, 0, 1, y, 0)
    :: !((CURRENT || s[me].state == REQUESTING) && x == s[me].own) && !current && s[me].parked && SHOWS(x) -> send(pong, n, 0, 1, y, 0)
    :: else -> send(pong, n, 0, 0, y, 0)
    fi
}

inline on_pong(n, holds, x) {
    if
    :: x == RANDOM && s[me].question && n == s[me].question ->
        s[me].question = 0;
        s[me].disowned = !holds
    :: else
    fi
}

/* client.cc: on_reply(). */
inline on_reply(t, i, v, x, y) {
    if
    :: s[me].state == REQUESTING && x == s[me].own && t == s[me].transaction && i > s[me].incarnation ->
        s[me].incarnation = i;
        s[me].theirs = y;
        if
        :: v > s[me].seen -> s[me].seen = v
        :: else
        fi;
        set(CONFIRMING);
        send_confirm()
    :: else
    fi
}

/* server.cc: on_confirm(). */
inline on_confirm(t, i, x, y) {
    if
    :: x == s[me].own && s[me].server && s[me].transaction == t && s[me].incarnation == i && s[me].state == ACCEPTING ->
        set(ESTABLISHED);
        send(ready, t, i, 0, s[me].theirs, 0)
    :: x == s[me].own && s[me].server && s[me].transaction == t && s[me].incarnation == i && s[me].state == ESTABLISHED ->
        send(ready, t, i, 0, s[me].theirs, 0)
    :: else -> send(refused, t, i, 0, y, 0)
    fi
}

inline on_ready(t, i, x) {
    if
    :: s[me].state == CONFIRMING && x == s[me].own && t == s[me].transaction && i == s[me].incarnation -> set(ESTABLISHED)
    :: else
    fi
}

inline on_refused(t, i, x) {
    if
    :: s[me].state == CONFIRMING && x == s[me].own && t == s[me].transaction && i == s[me].incarnation ->
        s[me].newest++;
        s[me].transaction = s[me].newest;
        set(REQUESTING)
    :: else
    fi
}

/* goodbye.cc: on_ended(); endings.cc: judge_leaver(). */
inline on_ended(n, i, d, x, y) {
    if
    :: SHOWS(x) && s[me].incarnation == i && (s[me].state == ESTABLISHED || s[me].state == CONFIRMING) ->
        if
        :: s[me].state == CONFIRMING -> set(ESTABLISHED)
        :: else
        fi;
        if
        :: n == s[me].heard -> send(known, n, i, s[me].needed, s[me].theirs, 0)
        :: n > s[me].heard ->
            assert(d <= s[me].next);
            if
            :: d > s[me].acked -> s[me].acked = d
            :: else
            fi;
            s[me].heard = n;
            s[me].needed = !(IDLE && d == s[me].next);
            send(known, n, i, s[me].needed, s[me].theirs, 0);
            if
            :: !s[me].needed -> close()
            :: else
            fi
        :: n < s[me].heard
        fi
    :: else -> send(known, n, i, 0, y, 0) /* we know of no such connection: it has ended here */
    fi
}

inline on_known(n, i, holds, x) {
    if
    :: (SHOWS(x) || x == RANDOM) && s[me].state == ESTABLISHED && s[me].incarnation == i && s[me].retiring && n == s[me].asked ->
        s[me].retiring = 0;
        if
        :: !holds -> close()
        :: else
        fi
    :: else
    fi
}

/* What has been handled shall not make states differ. */
inline forget() { kind = 0; a = 0; b = 0; c = 0; x = 0; y = 0 }

proctype side(bit me) {
    mtype kind;
    byte a, b, c, x, y;
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
        if
        :: s[me].state == CONFIRMING -> set(ESTABLISHED)
        :: else
        fi;
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
    :: atomic { news[me]?kind(a, b, c, x, y) ->
        if
        :: true
        :: nempty(news[me]) -> news[me]!kind(a, b, c, x, y); news[me]?kind(a, b, c, x, y) /* the next one first */
        fi;
        if
        :: kind == request -> on_request(a, b, x, y)
        :: kind == reply -> on_reply(a, b, c, x, y)
        :: kind == confirm -> on_confirm(a, b, x, y)
        :: kind == ready -> on_ready(a, b, x)
        :: kind == refused -> on_refused(a, b, x)
        :: kind == ended -> on_ended(a, b, c, x, y)
        :: kind == known -> on_known(a, b, c, x)
        :: kind == ping -> on_ping(a, b, x, y)
        :: kind == pong -> on_pong(a, c, x)
        fi;
        forget() }
    od
}

/* In the other side's name: with the numbers that fit best. */
#define LIE(kind, p, q, r) atomic { lies > 0 && s[me].held_own && nfull(news[me]) -> lies--; news[me]!kind(p, q, r, 0, NOBODY) }
proctype intruder(bit me) {
end:
    do
    :: LIE(request, s[me].transaction, s[me].incarnation, 0)
    :: LIE(request, s[me].seen + 1, 0, 0)
    :: LIE(request, 90, 90, 0)
    :: LIE(reply, s[me].transaction, s[me].incarnation + 1, 0)
    :: LIE(confirm, s[me].transaction, s[me].incarnation, 0)
    :: LIE(ready, s[me].transaction, s[me].incarnation, 0)
    :: LIE(refused, s[me].transaction, s[me].incarnation, 0)
    :: LIE(ended, s[me].heard + 1, s[me].incarnation, s[me].next)
    :: LIE(known, s[me].asked, s[me].incarnation, 0)
    :: LIE(pong, s[me].question, 0, 0)
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
        run intruder(0);
        run intruder(1);
        run clock()
    }
}

#define TOGETHER (s[0].state == ESTABLISHED && s[1].state == ESTABLISHED && s[0].incarnation == s[1].incarnation && \
    !s[0].retiring && !s[1].retiring)
#define APART (s[0].state == CLOSED && s[1].state == CLOSED)

/* In the end every message has arrived, and both sides think the same. */
ltl returns { <> [] (s[0].got == MESSAGES && s[1].got == MESSAGES && (TOGETHER || APART)) }
