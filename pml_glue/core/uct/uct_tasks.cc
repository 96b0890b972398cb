#include "pml_glue/core/uct/uct_tasks.h"

#include <cstring>

namespace ucx_mp::glue {

namespace {

constexpr unsigned kMostRails = 64;
// A dead adapter completes nothing: it is asked once in so many looks.
constexpr unsigned kLooks = 1024;

class UctTaskMemory final : public TaskMemory {
public:
    explicit UctTaskMemory(const Lane& lane) : lane_(lane) {}
    UctTaskMemory(const UctTaskMemory&) = delete;
    ~UctTaskMemory() override {
        if (handle != UCT_MEM_HANDLE_NULL) (void)uct_md_mem_dereg(lane_.domain(), handle);
    }
    [[nodiscard]] bool open(void* address, std::size_t length) {
        if (uct_md_mem_reg(lane_.domain(), address, length, UCT_MD_MEM_ACCESS_RMA | UCT_MD_MEM_FLAG_HIDE_ERRORS,
                           &handle) != UCS_OK) {
            handle = UCT_MEM_HANDLE_NULL;
            return false;
        }
        return true;
    }
    // Anew each time: an adapter that has died and is there again has another key.
    [[nodiscard]] std::vector<std::byte> keys() const override {
        std::vector<std::byte> out(lane_.domain_attributes().rkey_packed_size);
        if (uct_md_mkey_pack(lane_.domain(), handle, out.data()) != UCS_OK) out.clear();
        return out;
    }
    uct_mem_h handle = UCT_MEM_HANDLE_NULL;

private:
    const Lane& lane_;
};

} // namespace

class UctTaskQueue final : public TaskQueue {
public:
    UctTaskQueue(UctTasks& all, unsigned rail, uct_mp_task_queue_h queue, const UctTaskMemory& words,
                 const UctTaskMemory& data)
        : all_(all), rail_(rail), queue_(queue), words_(words), data_(data) {
        ++all.queues_[rail];
    }
    UctTaskQueue(const UctTaskQueue&) = delete;
    ~UctTaskQueue() override {
        uct_mp_task_queue_destroy(queue_);
        for (Key* const key : {&word_key_, &data_key_})
            if (key->is_there) (void)uct_rkey_release(all_.lane_.component(), &key->bundle);
        --all_.queues_[rail_];
    }
    void tell(std::byte* half) const override {
        static_assert(UCT_MP_TASK_HALF_SIZE == kHalf);
        (void)uct_mp_task_queue_tell(queue_, half);
    }
    [[nodiscard]] bool connect(const std::byte* half, std::span<const std::byte> word_keys,
                               std::span<const std::byte> data_keys) override {
        return unpack(word_keys, word_key_) && unpack(data_keys, data_key_) &&
               uct_mp_task_queue_connect(queue_, half, kHalf) == UCS_OK;
    }
    [[nodiscard]] bool post(const Task& task) override {
        ucs_status_t status = word_key_.is_there && data_key_.is_there ? UCS_OK : UCS_ERR_UNREACHABLE;
        for (const std::uint64_t* const word : task.words)
            if (status == UCS_OK) status = uct_mp_task_wait(queue_, word, words_.handle, task.value);
        if (status == UCS_OK && task.bytes)
            status = uct_mp_task_write(queue_, task.from, task.bytes, data_.handle, task.to, data_key_.bundle.rkey);
        if (status == UCS_OK) status = uct_mp_task_word(queue_, task.value, task.word, word_key_.bundle.rkey);
        if (status == UCS_OK) status = uct_mp_task_post(queue_);
        if (status != UCS_OK) uct_mp_task_forget(queue_);
        return status == UCS_OK;
    }
    [[nodiscard]] State state() const override {
        uct_mp_task_queue_attr_t attr;
        if (uct_mp_task_queue_query(queue_, &attr, sizeof attr) != UCS_OK) return {};
        return {attr.posted, attr.done, attr.failed != 0 || all_.gone_[rail_]};
    }

private:
    struct Key {
        uct_rkey_bundle_t bundle{};
        bool is_there = false;
    };
    [[nodiscard]] bool unpack(std::span<const std::byte> packed, Key& out) const {
        if (packed.empty()) return true;
        if (packed.size() != all_.lane_.domain_attributes().rkey_packed_size || out.is_there) return false;
        out.is_there = uct_rkey_unpack(all_.lane_.component(), packed.data(), &out.bundle) == UCS_OK;
        return out.is_there;
    }
    UctTasks& all_;
    const unsigned rail_;
    uct_mp_task_queue* const queue_;
    const UctTaskMemory &words_, &data_;
    Key word_key_, data_key_;
};

UctTasks::UctTasks(const Lane& lane) : lane_(lane) {}

unsigned UctTasks::rails() {
    if (queues_.empty()) {
        unsigned rails = 0;
        while (rails < kMostRails && uct_mp_tasks_query(lane_.interface(), rails) != UCS_ERR_INVALID_PARAM) ++rails;
        queues_.resize(rails);
        gone_.resize(rails);
    }
    return static_cast<unsigned>(queues_.size());
}

TaskPort::Can UctTasks::can_wait(unsigned rail) {
    switch (uct_mp_tasks_query(lane_.interface(), rail)) {
    case UCS_OK:
        return gone_[rail] ? Can::no : Can::yes;
    case UCS_INPROGRESS:
    case UCS_ERR_UNREACHABLE:
        return Can::later;
    default:
        return Can::no;
    }
}

std::unique_ptr<TaskMemory> UctTasks::expose(void* address, std::size_t length) {
    auto memory = std::make_unique<UctTaskMemory>(lane_);
    if (!memory->open(address, length)) return nullptr;
    return memory;
}

std::unique_ptr<TaskQueue> UctTasks::create(unsigned rail, unsigned depth, const TaskMemory& words,
                                            const TaskMemory& data) {
    uct_mp_task_queue_h queue = nullptr;
    if (uct_mp_task_queue_create(lane_.interface(), rail, depth, &queue) != UCS_OK) return nullptr;
    return std::make_unique<UctTaskQueue>(*this, rail, queue, static_cast<const UctTaskMemory&>(words),
                                          static_cast<const UctTaskMemory&>(data));
}

// One whose adapter has died has no queues for the rest of the interface's life.
void UctTasks::progress() {
    (void)uct_mp_tasks_progress(lane_.interface());
    if (++looks_ % kLooks != 0) return;
    for (unsigned rail = 0; rail < queues_.size(); ++rail)
        if (queues_[rail] && uct_mp_tasks_query(lane_.interface(), rail) == UCS_ERR_UNREACHABLE) gone_[rail] = true;
}

} // namespace ucx_mp::glue
