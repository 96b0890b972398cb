/* Epochs: which calls may come when, and waiting for the core. */
#include "osc_mp.h"

/* Polls of our own between two of Open MPI's full polls. It yields the processor there
 * if ranks are more than processors: another rank that we wait for may need it. */
static int polls(void) { return opal_progress_yield_when_idle ? 4 : 64; }

void mca_osc_mp_pass(void) {
    static int left;
    mca_pml_mp_lock();
    const bool ours = left-- > 0;
    if (ours)
        mp_core_progress(mca_pml_mp.core);
    else
        left = polls();
    mca_pml_mp_unlock();
    if (!ours) opal_progress();
}

typedef struct question {
    mca_osc_mp_asked_t asked; /* null: whether what was started until now is flushed */
    uint32_t rank;
    bool local;
    uint64_t call;
} question_t;

static bool ask(mp_window_t* window, question_t* question) {
    if (question->asked != NULL) return question->asked(window, question->rank);
    /* Without threads nobody starts any meanwhile. */
    return mp_window_flushed(window, question->rank, question->local, mca_pml_mp.threads ? &question->call : NULL);
}

static void wait_for(mca_osc_mp_module_t* module, question_t question) {
    mca_pml_mp_lock();
    bool over = ask(module->window, &question);
    mca_pml_mp_unlock();
    if (over) mca_osc_mp_pass();
    for (int left = polls(); !over; left--) {
        if (left == 0) {
            opal_progress();
            left = polls();
        }
        mca_pml_mp_lock();
        mp_core_progress(mca_pml_mp.core);
        over = ask(module->window, &question);
        mca_pml_mp_unlock();
    }
}

void mca_osc_mp_wait(mca_osc_mp_module_t* module, mca_osc_mp_asked_t asked, uint32_t rank) {
    wait_for(module, (question_t){.asked = asked, .rank = rank});
}

static bool fenced(mp_window_t* window, uint32_t unused) {
    (void)unused;
    return mp_window_fence(window);
}

/* The errors so far. */
static int outcome(mca_osc_mp_module_t* module, uint32_t rank) {
    mca_pml_mp_lock();
    const mp_error_t error = mp_window_error(module->window, rank);
    mca_pml_mp_unlock();
    return mca_pml_mp_code(error);
}

/* For the ranks of an access epoch: their own calls tell what others have done wrong. */
static int access_outcome(mca_osc_mp_module_t* module) {
    int result = OMPI_SUCCESS;
    for (int i = 0; i < module->access.count; i++) {
        const int its = outcome(module, (uint32_t)module->access.ranks[i]);
        if (its != OMPI_SUCCESS) result = its;
    }
    return result;
}

/* For an exposure epoch, in which only the death of ranks is an error. Our own
 * operations on them are not asked for: the end of those tells their errors. */
static int exposure_outcome(mca_osc_mp_module_t* module) {
    bool gone = false;
    mca_pml_mp_lock();
    for (int i = 0; i < module->exposure.count; i++)
        gone |= mp_window_gone(module->window, (uint32_t)module->exposure.ranks[i]);
    mca_pml_mp_unlock();
    return gone ? mca_pml_mp_code(MP_FAILED) : OMPI_SUCCESS;
}

int mca_osc_mp_may(mca_osc_mp_module_t* module, int rank) {
    if (module->access.count >= 0) return module->reached[rank] ? OMPI_SUCCESS : OMPI_ERR_RMA_SYNC;
    if (module->held[rank] != MP_HELD_NONE) return OMPI_SUCCESS;
    if (module->all) {
        if (module->all_checks && !mp_window_wants_lock(module->window, (uint32_t)rank))
            mp_window_want_lock(module->window, (uint32_t)rank, false);
        return OMPI_SUCCESS;
    }
    return module->fence ? OMPI_SUCCESS : OMPI_ERR_RMA_SYNC;
}

/* MPI-3.1 11.5.1. MPI_MODE_NOPRECEDE saves nothing: late ranks must have come before another rank writes to them. */
int mca_osc_mp_fence(int promises, ompi_win_t* win) {
    mca_osc_mp_module_t* const module = mca_osc_mp_of(win);
    if (module->access.count >= 0 || module->exposure.count >= 0 || module->locks || module->all)
        return OMPI_ERR_RMA_SYNC;
    opal_atomic_mb();
    mca_osc_mp_wait(module, fenced, 0);
    module->fence = !(promises & MPI_MODE_NOSUCCEED);
    return outcome(module, MP_ALL_RANKS);
}

/* Ranks of a group in the window; false: no memory. */
static int enter(mca_osc_mp_module_t* module, mca_osc_mp_group_t* epoch, ompi_group_t* group) {
    const int count = ompi_group_size(group);
    int* const theirs = calloc(2 * (size_t)(count + 1), sizeof(int));
    if (theirs == NULL) return OMPI_ERR_OUT_OF_RESOURCE;
    int* const ours = theirs + count;
    for (int i = 0; i < count; i++) theirs[i] = i;
    int result = ompi_group_translate_ranks(group, count, theirs, module->comm->c_local_group, ours);
    for (int i = 0; i < count; i++)
        if (ours[i] == MPI_UNDEFINED) result = MPI_ERR_GROUP;
    if (result != OMPI_SUCCESS) {
        free(theirs);
        return result;
    }
    memcpy(theirs, ours, sizeof(int) * (size_t)count);
    epoch->ranks = theirs;
    epoch->count = count;
    return OMPI_SUCCESS;
}

static void leave(mca_osc_mp_group_t* epoch) {
    free(epoch->ranks);
    epoch->ranks = NULL;
    epoch->count = -1;
}

int mca_osc_mp_start(ompi_group_t* group, int promises, ompi_win_t* win) {
    mca_osc_mp_module_t* const module = mca_osc_mp_of(win);
    if (module->access.count >= 0 || module->locks || module->all) return OMPI_ERR_RMA_SYNC;
    const int result = enter(module, &module->access, group);
    if (result != OMPI_SUCCESS) return result;
    module->fence = false;
    mca_pml_mp_lock();
    for (int i = 0; i < module->access.count; i++) {
        module->reached[module->access.ranks[i]] = true;
        mp_window_access(module->window, (uint32_t)module->access.ranks[i], !(promises & MPI_MODE_NOCHECK));
    }
    mca_pml_mp_unlock();
    return OMPI_SUCCESS;
}

int mca_osc_mp_complete(ompi_win_t* win) {
    mca_osc_mp_module_t* const module = mca_osc_mp_of(win);
    mca_osc_mp_group_t* const group = &module->access;
    if (group->count < 0) return OMPI_ERR_RMA_SYNC;
    /* All are asked in turn, so that nobody waits for somebody else's post. */
    int until = polls();
    bool waits = false;
    for (unsigned left = (unsigned)group->count; left; waits |= left != 0) {
        mca_pml_mp_lock();
        left = 0;
        for (int i = 0; i < group->count; i++) {
            const int rank = group->ranks[i];
            if (module->reached[rank] && mp_window_completed(module->window, (uint32_t)rank))
                module->reached[rank] = false;
            left += module->reached[rank];
        }
        if (left) mp_core_progress(mca_pml_mp.core);
        mca_pml_mp_unlock();
        if (left && --until == 0) {
            opal_progress();
            until = polls();
        }
    }
    if (!waits) mca_osc_mp_pass();
    const int result = access_outcome(module);
    leave(group);
    return result;
}

int mca_osc_mp_post(ompi_group_t* group, int promises, ompi_win_t* win) {
    mca_osc_mp_module_t* const module = mca_osc_mp_of(win);
    if (module->exposure.count >= 0) return OMPI_ERR_RMA_SYNC;
    const int result = enter(module, &module->exposure, group);
    if (result != OMPI_SUCCESS) return result;
    opal_atomic_mb();
    mca_pml_mp_lock();
    for (int i = 0; i < module->exposure.count; i++)
        mp_window_expose(module->window, (uint32_t)module->exposure.ranks[i], !(promises & MPI_MODE_NOCHECK));
    mca_pml_mp_unlock();
    return OMPI_SUCCESS;
}

static bool exposure_over(mca_osc_mp_module_t* module) {
    bool over = true;
    for (int i = 0; i < module->exposure.count && over; i++)
        over = mp_window_closed(module->window, (uint32_t)module->exposure.ranks[i]);
    return over;
}

int mca_osc_mp_wait_epoch(ompi_win_t* win) {
    mca_osc_mp_module_t* const module = mca_osc_mp_of(win);
    if (module->exposure.count < 0) return OMPI_ERR_RMA_SYNC;
    for (int i = 0; i < module->exposure.count; i++)
        mca_osc_mp_wait(module, mp_window_closed, (uint32_t)module->exposure.ranks[i]);
    const int result = exposure_outcome(module);
    leave(&module->exposure);
    return result;
}

int mca_osc_mp_test(ompi_win_t* win, int* flag) {
    mca_osc_mp_module_t* const module = mca_osc_mp_of(win);
    if (module->exposure.count < 0) return OMPI_ERR_RMA_SYNC;
    mca_pml_mp_lock();
    *flag = exposure_over(module);
    if (!*flag) {
        mp_core_progress(mca_pml_mp.core);
        *flag = exposure_over(module);
    }
    mca_pml_mp_unlock();
    if (!*flag) {
        opal_progress();
        return OMPI_SUCCESS;
    }
    const int result = exposure_outcome(module);
    leave(&module->exposure);
    return result;
}

int mca_osc_mp_lock(int type, int target, int promises, ompi_win_t* win) {
    mca_osc_mp_module_t* const module = mca_osc_mp_of(win);
    const bool check = !(promises & MPI_MODE_NOCHECK);
    int result = OMPI_SUCCESS;
    mca_pml_mp_lock(); /* other threads lock other targets */
    if (module->held[target] != MP_HELD_NONE || module->all || module->access.count >= 0) {
        result = OMPI_ERR_RMA_SYNC;
    } else {
        module->fence = false;
        module->held[target] = check ? MP_HELD_LOCK : MP_HELD_NOCHECK;
        module->locks++;
        if (check) mp_window_want_lock(module->window, (uint32_t)target, type == MPI_LOCK_EXCLUSIVE);
    }
    mca_pml_mp_unlock();
    if (result != OMPI_SUCCESS || !check) return result;
    mca_osc_mp_wait(module, mp_window_locked, (uint32_t)target);
    mca_pml_mp_lock();
    const bool gone = mp_window_gone(module->window, (uint32_t)target);
    if (gone) { /* no epoch has begun that could be ended */
        (void)mp_window_unlocked(module->window, (uint32_t)target);
        module->held[target] = MP_HELD_NONE;
        module->locks--;
    }
    mca_pml_mp_unlock();
    return outcome(module, (uint32_t)target);
}

int mca_osc_mp_unlock(int target, ompi_win_t* win) {
    mca_osc_mp_module_t* const module = mca_osc_mp_of(win);
    if (module->held[target] == MP_HELD_NONE) return OMPI_ERR_RMA_SYNC;
    mca_osc_mp_wait(module, mp_window_unlocked, (uint32_t)target);
    mca_pml_mp_lock();
    module->held[target] = MP_HELD_NONE;
    module->locks--;
    mca_pml_mp_unlock();
    return outcome(module, (uint32_t)target);
}

/* The lock of a rank is asked for by the first operation on it; our own at once, since our memory is used without one.
 */
int mca_osc_mp_lock_all(int promises, ompi_win_t* win) {
    mca_osc_mp_module_t* const module = mca_osc_mp_of(win);
    if (module->all || module->locks || module->access.count >= 0) return OMPI_ERR_RMA_SYNC;
    module->all = true;
    module->fence = false;
    module->all_checks = !(promises & MPI_MODE_NOCHECK);
    if (!module->all_checks) return OMPI_SUCCESS;
    const uint32_t self = (uint32_t)ompi_comm_rank(module->comm);
    mca_pml_mp_lock();
    mp_window_want_lock(module->window, self, false);
    mca_pml_mp_unlock();
    mca_osc_mp_wait(module, mp_window_locked, self);
    return OMPI_SUCCESS;
}

int mca_osc_mp_unlock_all(ompi_win_t* win) {
    mca_osc_mp_module_t* const module = mca_osc_mp_of(win);
    if (!module->all) return OMPI_ERR_RMA_SYNC;
    mca_osc_mp_wait(module, mp_window_unlocked, MP_ALL_RANKS);
    module->all = false;
    return outcome(module, MP_ALL_RANKS);
}

int mca_osc_mp_sync(ompi_win_t* win) {
    (void)win;
    opal_atomic_mb();
    opal_progress();
    return OMPI_SUCCESS;
}

static int flush(ompi_win_t* win, bool local, uint32_t rank) {
    mca_osc_mp_module_t* const module = mca_osc_mp_of(win);
    if (!module->all && (rank == MP_ALL_RANKS ? !module->locks : module->held[rank] == MP_HELD_NONE))
        return OMPI_ERR_RMA_SYNC;
    if (OPAL_LIKELY(!local && rank != MP_ALL_RANKS && !mca_pml_mp.threads)) {
        mp_error_t error;
        const unsigned most = (unsigned)polls();
        unsigned left = most;
        bool waits = false;
        while (true) {
            mca_pml_mp_enter();
            const bool over = mp_window_flush(module->window, rank, &left, &error);
            mca_pml_mp_exit();
            if (over) break;
            opal_progress();
            waits = true;
            left = most;
        }
        if (left == most && !waits) mca_osc_mp_pass();
        return OPAL_LIKELY(error == MP_OK) ? OMPI_SUCCESS : mca_pml_mp_code(error);
    }
    wait_for(module, (question_t){.rank = rank, .local = local});
    return outcome(module, rank);
}

int mca_osc_mp_flush(int target, ompi_win_t* win) { return flush(win, false, (uint32_t)target); }
int mca_osc_mp_flush_all(ompi_win_t* win) { return flush(win, false, MP_ALL_RANKS); }
int mca_osc_mp_flush_local(int target, ompi_win_t* win) { return flush(win, true, (uint32_t)target); }
int mca_osc_mp_flush_local_all(ompi_win_t* win) { return flush(win, true, MP_ALL_RANKS); }
