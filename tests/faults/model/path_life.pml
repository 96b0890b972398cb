/*
 * The life of one path of mp_rc (uct_mp/PROTOCOL.md, "The phases of a path"), for spin: two sides, the path given up at
 * any moment on either of them, datagrams lost, doubled and overtaken, packets that come as late as they like.
 *
 * Modelled, with the names used there: the phases, and every rule of Exchange and Failure by which one follows from another;
 * the numbers of queue pairs and packets; writes, which are settled by the packet number that the other side tells.
 * Not modelled: other paths (a write that goes again is executed at once, somewhere), messages, fences, mp_dc, time: a
 * repetition comes when nothing else can happen, and EARLY times before.
 *
 * Side 0 is the client, side 1 the server of the connection. `ghost` marks what no side knows, for the assertions.
 */
#ifndef FAULTS
#define FAULTS 2 /* the path is given up by an adapter or an event, over both sides */
#endif
#ifndef LOSSES
#define LOSSES 1 /* datagrams and acknowledgments lost */
#endif
#ifndef DOUBLES
#define DOUBLES 1 /* datagrams that come twice */
#endif
#ifndef EARLY
#define EARLY 1 /* repetitions before anything was lost, over both sides */
#endif
#ifndef PUTS
#define PUTS 2 /* writes per side */
#endif

#define UNKNOWN 15 /* connect::kUnknownPsn */
#define NONE 0

mtype = { UP, DRAINING, ASKING, REOPENING, HALF }; /* path::Phase */
mtype = { down, open, opened };                    /* connect::PathKind */
mtype = { write, path_up };                        /* packets of the data path */

/* Datagrams to a side: kind, life, psn, answer, end. */
chan news[2] = [2] of { mtype, byte, byte, bit, byte };
/* Packets to a side: queue pair, packet number, what; ghost: life and which write. */
chan wire[2] = [2] of { byte, byte, mtype, byte, byte };

byte faults = FAULTS, losses = LOSSES, doubles = DOUBLES, early = EARLY;
byte numbers = 2; /* of queue pairs: the newest */

typedef Side {
    mtype phase = UP;
    byte life;
    bit mine_known, theirs_known;
    byte mine_psn, theirs_psn;
    byte next;      /* client: number of the half that it offers */
    byte their_end; /* server: of the path_open that it has accepted */
    byte qp, peer_qp;
    bit alive;
    byte send_psn, expected_psn;
    bit due;           /* its timers have run down */
    bit posted, acked; /* a write */
    byte put_psn;
    byte put;      /* ghost: writes begun */
    byte executed; /* ghost: times that the present one was executed at the other side */
};
Side s[2];

#define OTHER (1 - me)

inline send(kind, sl, sp, sa, se) {
    if
    :: nfull(news[OTHER]) -> news[OTHER]!kind(sl, sp, sa, se)
    :: nfull(news[OTHER]) && doubles > 0 ->
        doubles--;
        news[OTHER]!kind(sl, sp, sa, se);
        if
        :: nfull(news[OTHER]) -> news[OTHER]!kind(sl, sp, sa, se)
        :: full(news[OTHER])
        fi
    :: losses > 0 -> losses--
    :: full(news[OTHER]) /* no receive is posted: lost */
    fi
}

inline ask(a) { send(down, s[me].life, s[me].mine_psn, a, NONE) }

/* failure.cc: path_failed(), drain(). Our half executes nothing from now on. */
inline path_failed() {
    s[me].alive = 0;
    s[me].phase = DRAINING;
    s[me].mine_known = 0;
    s[me].theirs_known = 0
}

inline completed() {
    assert(s[me].executed == 1); /* neither lost nor twice */
    s[me].posted = 0;
    s[me].acked = 0;
    s[me].executed = 0
}

/* failure.cc: drained(). What had been acknowledged by then lies in the completion queue. */
inline drained() {
    if
    :: s[me].posted && s[me].acked -> completed()
    :: else
    fi;
    s[me].mine_psn = s[me].expected_psn;
    s[me].mine_known = 1;
    s[me].phase = ASKING;
    ask(s[me].theirs_known)
}

/* replay.cc: settled(). */
inline settled() {
    assert(s[me].mine_known && s[me].theirs_known);
    if
    :: s[me].posted ->
        assert(s[me].theirs_psn != UNKNOWN);
        assert(!(s[OTHER].alive && s[OTHER].qp == s[me].peer_qp)); /* what it told was its last word */
        if
        :: s[me].theirs_psn > s[me].put_psn /* it was executed */
        :: else -> s[me].executed++         /* goes again, over another path */
        fi;
        completed()
    :: else
    fi;
    s[me].phase = REOPENING
}

inline connect_half(number, peer) {
    s[me].qp = number;
    s[me].peer_qp = peer;
    s[me].alive = 1;
    s[me].send_psn = 0;
    s[me].expected_psn = 0
}

/* exchange.cc: on_path_down(). */
inline on_down(dl, dp, da) {
    if
    :: dl < s[me].life /* long settled */
    :: dl > s[me].life ->
        if
        :: dl == s[me].life + 1 && s[me].phase == REOPENING && s[me].next != NONE ->
            /* the server gave up the life that we were about to accept: nothing has been sent in it */
            s[me].life = dl;
            s[me].next = NONE;
            s[me].mine_psn = UNKNOWN;
            s[me].theirs_psn = dp;
            if
            :: !da -> ask(1)
            :: else
            fi
        :: else
        fi
    :: dl == s[me].life ->
        if
        :: s[me].phase == UP || s[me].phase == HALF -> path_failed()
        :: else
        fi;
        if
        :: !s[me].theirs_known -> s[me].theirs_psn = dp; s[me].theirs_known = 1
        :: else
        fi;
        if
        :: !da && s[me].mine_known -> ask(1)
        :: else
        fi
    fi
}

/* exchange.cc: on_path_open(), server. */
inline on_open(ol, oe) {
    if
    :: s[me].phase == HALF && ol == s[me].life && oe == s[me].their_end ->
        send(opened, s[me].life, 0, 0, s[me].qp) /* again */
    :: s[me].phase == HALF && ol == s[me].life && oe != s[me].their_end -> path_failed()
    :: s[me].phase == REOPENING && ol == s[me].life + 1 ->
        numbers++;
        connect_half(numbers, oe);
        s[me].life = ol;
        s[me].their_end = oe;
        s[me].phase = HALF;
        s[me].mine_known = 0;
        s[me].theirs_known = 0;
        send(opened, s[me].life, 0, 0, s[me].qp)
    :: else
    fi
}

/* exchange.cc: on_path_opened(), client; greet(). */
inline on_opened(ol, oe) {
    if
    :: s[me].phase == REOPENING && s[me].next != NONE && ol == s[me].life + 1 ->
        connect_half(s[me].next, oe);
        s[me].life = ol;
        s[me].next = NONE;
        s[me].phase = UP;
        wire[OTHER]!s[me].peer_qp, s[me].send_psn, path_up, s[me].life, 0; /* blocks while the wire is full */
        s[me].send_psn++
    :: else
    fi
}

inline execute(xq, xn, what, xl, xw) {
    if
    :: s[me].alive && xq == s[me].qp && xn == s[me].expected_psn ->
        assert(xl == s[me].life); /* no packet of another life */
        s[me].expected_psn++;
        if
        :: what == path_up ->
            if
            :: s[me].phase == HALF -> s[me].phase = UP
            :: else
            fi
        :: what == write ->
            assert(s[OTHER].posted && s[OTHER].put == xw); /* not after it has been settled */
            s[OTHER].executed++;
            assert(s[OTHER].executed == 1)
        fi
    :: else
    fi;
    /* acknowledged, also if it had been executed before; or the acknowledgment is lost, and the packet comes again */
    if
    :: s[me].alive && xq == s[me].qp && xn < s[me].expected_psn && what == write && s[OTHER].alive &&
       s[OTHER].qp == s[me].peer_qp && s[OTHER].posted && s[OTHER].put == xw ->
        if
        :: s[OTHER].acked = 1
        :: losses > 0 -> losses--
        fi
    :: else
    fi
}

/* What has been handled shall not make states differ. */
inline forget() { kind = 0; l = 0; p = 0; e = 0; q = 0; n = 0; w = 0; a = 0 }

proctype side(bit me) {
    mtype kind;
    byte l, p, e, q, n, w;
    bit a;
end: /* where it may stop is the formula's concern */
    do
    /* a fault: this side gives the path up */
    :: atomic { faults > 0 && (s[me].phase == UP || s[me].phase == HALF) -> faults--; path_failed() }

    /* writes */
    :: atomic { s[me].phase == UP && !s[me].posted && s[me].put < PUTS && nfull(wire[OTHER]) ->
        s[me].posted = 1;
        s[me].put++;
        s[me].put_psn = s[me].send_psn;
        s[me].send_psn++;
        wire[OTHER]!s[me].peer_qp, s[me].put_psn, write, s[me].life, s[me].put }
    :: atomic { s[me].alive && s[me].posted && s[me].acked -> completed() }
    :: atomic { wire[me]?q, n, kind, l, w -> execute(q, n, kind, l, w); forget() }

    /* repairs */
    :: atomic { s[me].phase == DRAINING -> drained() }
    :: atomic { s[me].phase == ASKING && s[me].theirs_known -> settled() }
    :: atomic { s[me].phase == ASKING && !s[me].theirs_known && early > 0 -> early--; ask(0) }
    :: atomic { me == 0 && s[me].phase == REOPENING && s[me].next == NONE -> numbers++; s[me].next = numbers;
        send(open, s[me].life + 1, 0, 0, s[me].next) }
    :: atomic { me == 0 && s[me].phase == REOPENING && s[me].next != NONE && early > 0 -> early--;
        send(open, s[me].life + 1, 0, 0, s[me].next) }
    :: atomic { s[me].due ->
        s[me].due = 0;
        if
        :: s[me].alive && s[me].posted && !s[me].acked && nfull(wire[OTHER]) -> /* the adapter repeats */
            wire[OTHER]!s[me].peer_qp, s[me].put_psn, write, s[me].life, s[me].put
        :: s[me].phase == ASKING && !s[me].theirs_known -> ask(0)
        :: me == 0 && s[me].phase == REOPENING && s[me].next != NONE -> send(open, s[me].life + 1, 0, 0, s[me].next)
        :: else
        fi }

    /* news, in any order */
    :: atomic { news[me]?kind(l, p, a, e) ->
        if
        :: true
        :: nempty(news[me]) -> news[me]!kind(l, p, a, e); news[me]?kind(l, p, a, e) /* the next one first */
        fi;
        if
        :: kind == down -> on_down(l, p, a)
        :: kind == open && me == 1 -> on_open(l, e)
        :: kind == opened && me == 0 -> on_opened(l, e)
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
        s[0].qp = 1; s[0].peer_qp = 2; s[0].alive = 1;
        s[1].qp = 2; s[1].peer_qp = 1; s[1].alive = 1;
        run side(0);
        run side(1);
        run clock()
    }
}

/* Faults end; then the path is up on both sides, for good, and all writes are done. */
ltl returns { <> [] (s[0].phase == UP && s[1].phase == UP && !s[0].posted && !s[1].posted) }
