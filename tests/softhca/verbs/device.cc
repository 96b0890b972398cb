// The device list: the adapters of the machine that this process stands for.
#include <endian.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "verbs/face.h"

using namespace softhca;
using namespace softhca::face;

namespace {

std::mutex g_mutex;

// Device structures by image index. Never shrinks: programs keep ibv_device pointers of open contexts.
std::map<uint32_t, std::unique_ptr<Device>>& devices() {
    static auto* map = new std::map<uint32_t, std::unique_ptr<Device>>; // outlives exit handlers
    return *map;
}

void describe(Device& d, const DeviceImage& image, uint32_t index) {
    d.index = index;
    d.dev.node_type = IBV_NODE_CA;
    d.dev.transport_type = IBV_TRANSPORT_IB;
    std::snprintf(d.dev.name, sizeof d.dev.name, "softhca_%u", image.index);
    std::snprintf(d.dev.dev_name, sizeof d.dev.dev_name, "uverbs%u", image.index);
    std::snprintf(d.dev.dev_path, sizeof d.dev.dev_path, "/sys/class/infiniband_verbs/uverbs%u", image.index);
    std::snprintf(d.dev.ibdev_path, sizeof d.dev.ibdev_path, "/sys/class/infiniband/softhca_%u", image.index);
}

const DeviceImage* image_of(const ibv_device* dev) {
    Process* process = Process::current();
    const uint32_t index = reinterpret_cast<const Device*>(dev)->index;
    if (!process || index >= process->seg().img().devices) return nullptr;
    return &process->seg().img().device(index);
}

} // namespace

VERBS_API ibv_device** ibv_get_device_list(int* num) {
    if (num) *num = 0;
    std::lock_guard guard(g_mutex);
    Process* process = Process::current();
    // attach() is idempotent, and joins again in a child of fork().
    if (!process || !process->virtual_time()) process = Process::attach();
    if (!process) return nullptr;
    if (process->node() == kNone && process->choose_node() == kNone) return fail_null(ENODEV);

    const FabricImage& image = process->seg().img();
    const NodeImage& node = image.node(process->node());
    auto** list = static_cast<ibv_device**>(std::calloc(node.devices + 1, sizeof(ibv_device*)));
    if (!list) return fail_null(ENOMEM);
    for (uint32_t i = 0; i < node.devices; ++i) {
        const uint32_t index = node.first_device + i;
        std::unique_ptr<Device>& device = devices()[index];
        if (!device) device = std::make_unique<Device>();
        describe(*device, image.device(index), index);
        list[i] = &device->dev;
    }
    if (num) *num = static_cast<int>(node.devices);
    return list;
}

VERBS_API void ibv_free_device_list(ibv_device** list) { std::free(list); }

VERBS_API const char* ibv_get_device_name(ibv_device* dev) { return dev->name; }

VERBS_API __be64 ibv_get_device_guid(ibv_device* dev) {
    const DeviceImage* image = image_of(dev);
    return image ? htobe64(image->guid) : 0;
}

VERBS_API int ibv_get_device_index(ibv_device* dev) {
    const DeviceImage* image = image_of(dev);
    return image ? static_cast<int>(image->index) : -1;
}

VERBS_API int ibv_fork_init() { return 0; } // other processes read and write by process id: nothing to protect

VERBS_API ibv_fork_status ibv_is_fork_initialized() { return IBV_FORK_UNNEEDED; }
VERBS_API int ibv_dontfork_range(void*, size_t) { return 0; }
VERBS_API int ibv_dofork_range(void*, size_t) { return 0; }
