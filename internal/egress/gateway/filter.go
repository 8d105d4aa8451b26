package gateway

import (
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/nested"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// filter stands between the device and the stack. It lets ARP, TCP and UDP through, hands ICMP to onICMP and drops it (the stack
// would answer echoes for every address by itself), and drops all else.
type filter struct {
	nested.Endpoint
	onICMP func(src, dst tcpip.Address)
}

func newFilter(child stack.LinkEndpoint, onICMP func(src, dst tcpip.Address)) *filter {
	f := &filter{onICMP: onICMP}
	f.Init(child, f)
	return f
}

// DeliverNetworkPacket implements stack.NetworkDispatcher.
func (f *filter) DeliverNetworkPacket(protocol tcpip.NetworkProtocolNumber, pkt *stack.PacketBuffer) {
	switch protocol {
	case header.ARPProtocolNumber:
		f.Endpoint.DeliverNetworkPacket(protocol, pkt)
	case header.IPv4ProtocolNumber:
		b, ok := pkt.Data().PullUp(header.IPv4MinimumSize)
		if !ok {
			return
		}
		ip := header.IPv4(b)
		switch ip.TransportProtocol() {
		case header.TCPProtocolNumber, header.UDPProtocolNumber:
			f.Endpoint.DeliverNetworkPacket(protocol, pkt)
		case header.ICMPv4ProtocolNumber:
			f.onICMP(ip.SourceAddress(), ip.DestinationAddress())
		}
	}
}
