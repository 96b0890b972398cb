/*
 * RC that comes and goes (uct_mp/PROTOCOL.md, "RC that comes and goes"), for spin: one place on demand between two sides.
 * Either wishes, agrees, refuses and takes back at any moment, the path is given up at any moment, datagrams are lost,
 * doubled and overtaken.
 *
 * Modelled, with the names used there: wishes with their numbers and the one verdict of each; lives and phases of the path,
 * what is offered, made void and given back. Nothing is kept in a pool: what nobody wants is given back.
 * Not modelled: traffic and what settles it (path_life.pml), the DC path beside it, several places, queue pairs made aside.
 *
 * Side 0 is the client, side 1 the server.
 */
#ifndef WISHES
#define WISHES 2 /* of both sides together, to have RC or not to have it */
#endif
#ifndef REVOKES
#define REVOKES 1
#endif
#ifndef FAULTS
#define FAULTS 1
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#ifndef OVERTAKES
#define OVERTAKES 2
#endif
#ifndef DOUBLES
#define DOUBLES 0
#endif

mtype = { ABSENT, REOPENING, HALF, UP, DRAINING, ASKING };
mtype = { service, service_known, down, open, opened };

/* Datagrams to a side: kind; number or life; wish, taken, answer, or end. */
chan news[2] = [2] of { mtype, byte, byte };

byte faults, revokes, wishes, losses = LOSSES, doubles = DOUBLES, overtakes = OVERTAKES;
byte halves = 1; /* the newest that the client has made */

typedef Side {
    mtype phase = ABSENT;
    byte life;
    bit mine_known, theirs_known;
    byte next, end; /* client: the half that it offers, the one that it uses; server: the client's that it has accepted */
    bit offered, fresh; /* fresh: may be tried at once, else by the timer */
    bit ours, answered = 1, refused;
    byte number;
    bit theirs, heard_refused, revoking;
    byte heard;
    bit due;
};
Side s[2];

#define OTHER (1 - me)
#define WANTED (s[me].ours || s[me].theirs)
#define AGREED (WANTED && (s[me].theirs || s[me].answered))

inline send(kind, x, y) {
    if
    :: nfull(news[OTHER]) -> news[OTHER]!kind(x, y)
    :: nfull(news[OTHER]) && doubles > 0 ->
        doubles--;
        news[OTHER]!kind(x, y);
        if
        :: nfull(news[OTHER]) -> news[OTHER]!kind(x, y)
        :: full(news[OTHER])
        fi
    :: losses > 0 -> losses--
    :: full(news[OTHER])
    fi
}

/* -- The path */

inline join() {
    s[me].mine_known = 1;
    s[me].fresh = 1;
    s[me].phase = REOPENING
}

inline give_back() {
    s[me].phase = ABSENT;
    s[me].fresh = 0;
    s[me].next = 0
}

/* demand.cc: refresh(). */
inline refresh() {
    if
    :: AGREED && me == 0 && s[me].phase == ABSENT -> join()
    :: !WANTED && s[me].phase == REOPENING && !s[me].offered -> give_back()
    :: else
    fi
}

inline path_failed() {
    s[me].phase = DRAINING;
    s[me].mine_known = 0;
    s[me].theirs_known = 0
}

inline try_open() {
    if
    :: s[me].next == 0 -> halves++; s[me].next = halves
    :: else
    fi;
    s[me].offered = 1;
    s[me].fresh = 0;
    send(open, s[me].life + 1, s[me].next)
}

/* demand.cc: void_life(). */
inline void_life(l) {
    if
    :: l == s[me].life + 1 -> s[me].life = l; s[me].mine_known = 1; s[me].theirs_known = 1
    :: else
    fi;
    if
    :: l == s[me].life -> send(down, l, 1)
    :: else
    fi
}

/* exchange.cc: on_path_open(), server. */
inline on_open(l, e) {
    if
    :: (s[me].phase == ABSENT && !WANTED) || ((s[me].phase == ABSENT || s[me].phase == REOPENING) && l == s[me].life) ->
        void_life(l)
    :: else ->
        if
        :: s[me].phase == ABSENT -> join()
        :: else
        fi;
        if
        :: s[me].phase == HALF && l == s[me].life && e == s[me].end -> send(opened, l, 0)
        :: s[me].phase == HALF && l == s[me].life && e != s[me].end -> path_failed()
        :: s[me].phase == REOPENING && l == s[me].life + 1 ->
            s[me].life = l;
            s[me].end = e;
            s[me].phase = HALF;
            s[me].mine_known = 0;
            s[me].theirs_known = 0;
            send(opened, l, 0)
        :: else
        fi
    fi
}

/* exchange.cc: on_path_opened(), client. */
inline on_opened(l) {
    if
    :: s[me].phase == REOPENING && s[me].next && l == s[me].life + 1 ->
        s[me].life = l;
        s[me].end = s[me].next;
        s[me].next = 0;
        s[me].offered = 0;
        s[me].phase = UP
    :: else
    fi
}

/* exchange.cc: on_path_down(). */
inline on_down(dl, da) {
    if
    :: (s[me].phase == ABSENT && s[me].life == 0) || dl < s[me].life || (dl > s[me].life + 1) ||
       (dl == s[me].life + 1 && !(s[me].phase == REOPENING && s[me].offered))
    :: else ->
        if
        :: dl == s[me].life + 1 -> /* nothing has been sent in it */
            s[me].life = dl;
            s[me].next = 0;
            s[me].offered = 0;
            refresh()
        :: dl == s[me].life && (s[me].phase == UP || s[me].phase == HALF) -> path_failed()
        :: else
        fi;
        s[me].theirs_known = 1;
        if
        :: !da && s[me].mine_known -> send(down, s[me].life, 1)
        :: else
        fi
    fi
}

/* -- Wishes */

inline set_wish(rc) {
    s[me].ours = rc;
    s[me].number++;
    s[me].answered = 0;
    s[me].refused = 0;
    send(service, s[me].number, s[me].ours)
}

/* demand.cc: take_wish(). Whether there is room nobody knows. */
inline take_wish(n, rc) {
    if
    :: n < s[me].heard
    :: else ->
        if
        :: n > s[me].heard ->
            s[me].revoking = 0;
            s[me].heard = n;
            s[me].theirs = rc;
            s[me].heard_refused = 0;
            if
            :: rc -> s[me].theirs = 0; s[me].heard_refused = 1
            :: true
            fi
        :: else
        fi;
        send(service_known, s[me].heard, !s[me].heard_refused);
        refresh()
    fi
}

/* demand.cc: take_verdict(). */
inline take_verdict(n, taken) {
    if
    :: n == s[me].number && s[me].answered && !taken ->
        set_wish(0);
        s[me].refused = 1;
        refresh()
    :: n == s[me].number && !s[me].answered ->
        s[me].answered = 1;
        if
        :: !taken -> s[me].ours = 0
        :: else
        fi;
        refresh()
    :: else
    fi
}

proctype side(bit me) {
    mtype kind;
    byte a, b;
end:
    do
    :: atomic { wishes > 0 -> wishes--; set_wish(!s[me].ours); refresh() }
    :: atomic { revokes > 0 && s[me].theirs -> revokes--;
        s[me].theirs = 0;
        s[me].heard_refused = 1;
        s[me].revoking = 1;
        send(service_known, s[me].heard, 0);
        refresh() }
    :: atomic { faults > 0 && (s[me].phase == UP || s[me].phase == HALF) -> faults--; path_failed() }

    :: atomic { s[me].phase == UP && !WANTED -> path_failed() } /* given back */
    :: atomic { s[me].phase == DRAINING -> s[me].mine_known = 1; s[me].phase = ASKING; send(down, s[me].life, s[me].theirs_known) }
    :: atomic { s[me].phase == ASKING && s[me].theirs_known ->
        if
        :: WANTED -> s[me].phase = REOPENING; s[me].fresh = 1
        :: else -> give_back()
        fi }
    :: atomic { me == 0 && s[me].phase == REOPENING && s[me].fresh -> try_open() }
    /* the client's first message has come */
    :: atomic { me == 1 && s[1].phase == HALF && s[0].phase == UP && s[0].life == s[1].life ->
        assert(s[0].end == s[1].end);
        s[1].phase = UP }

    :: atomic { s[me].due ->
        s[me].due = 0;
        if
        :: s[me].phase == ASKING && !s[me].theirs_known -> send(down, s[me].life, 0)
        :: me == 0 && s[me].phase == REOPENING -> try_open()
        :: else
        fi;
        if
        :: !s[me].answered -> send(service, s[me].number, s[me].ours)
        :: else
        fi;
        if
        :: s[me].revoking -> send(service_known, s[me].heard, 0)
        :: else
        fi }

    :: atomic { news[me]?kind(a, b) ->
        if
        :: true
        :: nempty(news[me]) && overtakes > 0 -> /* the next one first; not for ever */
            overtakes--;
            news[me]!kind(a, b);
            news[me]?kind(a, b)
        fi;
        if
        :: kind == service -> take_wish(a, b)
        :: kind == service_known -> take_verdict(a, b)
        :: kind == down -> on_down(a, b)
        :: kind == open -> if :: me == 1 -> on_open(a, b) :: else fi
        :: kind == opened -> if :: me == 0 -> on_opened(a) :: else fi
        fi;
        kind = 0; a = 0; b = 0 }
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
        if /* what may happen may also not happen: nothing shall need it */
        :: faults = FAULTS
        :: faults = 0
        fi;
        if
        :: revokes = REVOKES
        :: revokes = 0
        fi;
        if
        :: wishes = WISHES
        :: wishes = 1
        fi;
        run side(0);
        run side(1);
        run clock()
    }
}

/* In the end both know what is wished, and the path is there on both sides if somebody wants it, else on neither. */
#define KNOWN (s[0].answered && s[1].answered && s[0].ours == s[1].theirs && s[1].ours == s[0].theirs)
#define BOTH(p) (s[0].phase == p && s[1].phase == p && s[0].life == s[1].life)
ltl returns { <> [] (KNOWN && ((s[0].ours || s[1].ours) -> BOTH(UP)) && (!(s[0].ours || s[1].ours) -> BOTH(ABSENT))) }
