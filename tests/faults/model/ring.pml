/*
 * Messages through a ring of the receiver's and beside it (uct_mp/PROTOCOL.md, "Message rings"), for spin: one direction. The
 * ring is offered and taken back at any moment, the path fails at any moment, what was written may be placed late or lost
 * with it, datagrams are lost, doubled and overtaken.
 *
 * Modelled, with the names used there: numbers of offers, the one verdict of each, `until`; numbers of messages, slots, what
 * is not acknowledged and goes again when the path has failed (always over the receive queue).
 * Not modelled: the other direction, several paths, keys (each ring has memory of its own), fences, the end of a connection.
 */
#ifndef MESSAGES
#define MESSAGES 4
#endif
#ifndef OFFERS
#define OFFERS 2
#endif
#ifndef FAULTS
#define FAULTS 1
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#ifndef DOUBLES
#define DOUBLES 1
#endif
#define SLOTS 2
#define NUMBERS 6 /* of offers, and of taking back */

mtype = { ring, ring_known };
mtype = { NONE, OFFERED, USED, BACK, UNTIL };
#define TAKEN 254
#define LEFT 255

chan to_source = [2] of { mtype, byte, byte };   /* number; 1: a ring, 0: taken back */
chan to_receiver = [2] of { mtype, byte, byte }; /* number; TAKEN, LEFT, or until */
chan queue = [2] of { byte };                    /* sent messages */
chan writes = [2] of { byte, byte };             /* into which ring, of which message: in order */
chan late = [2] of { byte, byte };               /* of a path that has failed */

byte faults, backs, losses = LOSSES, doubles = DOUBLES, offers = OFFERS; /* backs: the receiver takes a ring back by itself */

/* The source. */
byte next, acked, again = MESSAGES; /* `again`: messages from here to `next` go again */
byte use, heard, verdict;
bit left_due, ring_due;

/* The receiver. */
byte expected, early; /* early: a bit for each */
mtype offer = NONE;
byte number, looks, until; /* looks: into this ring; 0: none */
byte memory[14];           /* message + 1, by ring and slot */

inline send(channel, kind, x, y) {
    if
    :: nfull(channel) -> channel!kind(x, y)
    :: nfull(channel) && doubles > 0 ->
        doubles--;
        channel!kind(x, y);
        if
        :: nfull(channel) -> channel!kind(x, y)
        :: full(channel)
        fi
    :: losses > 0 -> losses--
    :: full(channel)
    fi
}

/* rings.cc: take_offer(). */
inline take_offer(n, on) {
    if
    :: n < heard
    :: n == heard -> send(to_receiver, ring_known, n, verdict)
    :: n > heard ->
        heard = n;
        left_due = 0;
        if
        :: on -> use = n; verdict = TAKEN
        :: !on -> use = 0; verdict = next
        fi;
        send(to_receiver, ring_known, n, verdict)
    fi
}

/* rings.cc: path_failed(). What has been posted is lost, or placed late; what is not acknowledged goes again. */
inline path_failed() {
    do
    :: nempty(writes) && nfull(late) -> writes?a, b; late!a, b
    :: nempty(writes) -> writes?a, b
    :: nempty(queue) -> queue?a
    :: empty(writes) && empty(queue) -> break
    od;
    again = acked;
    if
    :: use ->
        use = 0;
        verdict = LEFT;
        left_due = 1;
        send(to_receiver, ring_known, heard, LEFT)
    :: else
    fi
}

inline take_back() {
    number++;
    offer = BACK;
    send(to_source, ring, number, 0)
}

inline take_verdict(n, what) {
    if
    :: n == number && offer == OFFERED && what == TAKEN -> offer = USED
    :: n == number && (offer == OFFERED || offer == USED) && what == LEFT -> take_back()
    :: n == number && offer == BACK -> until = what; offer = UNTIL
    :: else
    fi
}

inline place(r, m) { memory[r * SLOTS + m % SLOTS] = m + 1 }

/* What has come early follows. */
inline deliver() {
    assert(expected < next);
    expected++;
    do
    :: early & (1 << expected) -> early = early & ~(1 << expected); expected++
    :: else -> break
    od
}

proctype source() {
    mtype kind;
    byte a, b;
end:
    do
    :: atomic { next < MESSAGES && nfull(queue) -> queue!next; next++ }
    :: atomic { next < MESSAGES && use && next - acked < SLOTS && nfull(writes) -> writes!use, next; next++ }
    :: atomic { again < next && nfull(queue) ->
        if
        :: again >= acked -> queue!again
        :: else
        fi;
        again++;
        if
        :: again == next -> again = MESSAGES
        :: else
        fi }
    :: atomic { acked < expected -> acked = expected }
    :: atomic { faults > 0 -> faults--; path_failed(); a = 0; b = 0 }
    :: atomic { left_due && ring_due -> ring_due = 0; send(to_receiver, ring_known, heard, LEFT) }
    :: atomic { to_source?kind(a, b) ->
        if
        :: true
        :: nempty(to_source) -> to_source!kind(a, b); to_source?kind(a, b)
        fi;
        take_offer(a, b);
        kind = 0; a = 0; b = 0 }
    od
}

proctype receiver() {
    mtype kind;
    byte a, b;
    bit due;
end:
    do
    :: atomic { writes?a, b -> place(a, b); a = 0; b = 0 }
    :: atomic { late?a, b -> place(a, b); a = 0; b = 0 }
    :: atomic { queue?a ->
        if
        :: a == expected -> deliver()
        :: a > expected -> early = early | (1 << a)
        :: a < expected
        fi;
        a = 0 }
    :: atomic { looks && memory[looks * SLOTS + expected % SLOTS] == expected + 1 -> deliver() }
    :: atomic { offer == NONE && offers > 0 && number + 2 <= NUMBERS ->
        offers--;
        number++;
        looks = number;
        offer = OFFERED;
        send(to_source, ring, number, 1) }
    :: atomic { (offer == OFFERED || offer == USED) && backs > 0 -> backs--; take_back() }
    :: atomic { offer == UNTIL && expected >= until -> offer = NONE; looks = 0; until = 0 }
    :: atomic { timeout -> ring_due = left_due;
        if
        :: offer == OFFERED -> send(to_source, ring, number, 1)
        :: offer == BACK -> send(to_source, ring, number, 0)
        :: else
        fi }
    :: atomic { to_receiver?kind(a, b) ->
        if
        :: true
        :: nempty(to_receiver) -> to_receiver!kind(a, b); to_receiver?kind(a, b)
        fi;
        take_verdict(a, b);
        kind = 0; a = 0; b = 0 }
    od
}

init {
    atomic {
        if /* what may happen may also not happen: nothing shall need it */
        :: faults = FAULTS
        :: faults = 0
        fi;
        if
        :: backs = 1
        :: backs = 0
        fi;
        run source();
        run receiver()
    }
}

/* Every message arrives, each in its turn (expected counts them), whatever becomes of the ring; and who has left one is heard. */
ltl returns { <> [] (expected == MESSAGES && offer != BACK && !left_due) }
