#include "uct_mp/channel/works.h"

#include <algorithm>
#include <utility>

#include "uct_mp/channel/data_path.h"

namespace ucx_mp::channel {

void Works::finish_work(Work& work) { finish(core_, work); }

bool Works::finish_unusual(Channel& channel, Work& work) {
    if (work.kind == WorkKind::get_bcopy) {
        if (!ucx_mp::failed(work.status)) work.unpack(work.unpack_arg, work.bounce->data(), work.transfer.size);
    } else if (work.kind == WorkKind::adapter_atomic) {
        if (!ucx_mp::failed(work.status) && work.unpack_arg) std::memcpy(work.unpack_arg, work.bounce->data(), 8);
        channel.gates |= channel.visible.unseen_gate;
    } else if (work.kind == WorkKind::read_back) {
        return core_.visibility.finish_read_back(channel, work);
    } else {
        if (work.kind >= WorkKind::replayed_put) core_.observer->finish_replayed(channel, work);
        return true;
    }
    --channel.moving.gets_open;
    --channel.moving.rdma_open;
    return true;
}

} // namespace ucx_mp::channel
