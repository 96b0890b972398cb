// Names of the link room that the channel room uses. Only this room includes it.
#pragma once

#include "uct_mp/link/adapter.h"
#include "uct_mp/link/dc_pool.h"
#include "uct_mp/link/send_queue.h"

namespace ucx_mp::channel {

using link::Adapter;
using link::Buffer;
using link::BufferPool;
using link::Completed;
using link::DcAddress;
using link::DcPool;
using link::DcRail;
using link::Fits;
using link::key_of_life;
using link::kNoEpoch;
using link::Peeked;
using link::Posted;
using link::ReceiveBuffer;
using link::ReceiveLayout;
using link::RemotePiece;
using link::SendQueue;

} // namespace ucx_mp::channel
