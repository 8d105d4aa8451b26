package gateway

import (
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"perdure.dev/perdure/internal/egress"
)

const dnsPort = 53

// onTCP is called on a goroutine of its own for each SYN. There is no dialler yet, so that even an allowed flow is reset: a gateway
// that cannot carry a flow must not pretend to have accepted it.
func (g *Gateway) onTCP(r *tcp.ForwarderRequest) {
	g.cfg.Decide(g.ctx, g.flow(egress.TCP, r.ID()))
	r.Complete(true)
}

// onUDP is called for each datagram. Returning false makes the stack answer with "port unreachable".
func (g *Gateway) onUDP(tid stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	f := g.flow(egress.UDP, tid)
	if tid.LocalPort != dnsPort {
		g.cfg.Decide(g.ctx, f)
		return false
	}
	query := pkt.Data().AsRange().ToSlice()
	f.Name = questionName(query)
	g.cfg.Decide(g.ctx, f)
	reply := refusal(query)
	if reply == nil {
		return false
	}
	g.sendUDP(tid, reply)
	return true
}

// sendUDP answers the sender of tid in the name of the address it wrote to.
func (g *Gateway) sendUDP(tid stack.TransportEndpointID, payload []byte) {
	route, err := g.stack.FindRoute(nic, tid.LocalAddress, tid.RemoteAddress, header.IPv4ProtocolNumber, false)
	if err != nil {
		return
	}
	defer route.Release()
	pkt := udpPacket(tid, route, payload)
	defer pkt.DecRef()
	// A reply that cannot be sent is like one lost on the wire: the resolver asks again.
	_ = route.WritePacket(stack.NetworkHeaderParams{Protocol: udp.ProtocolNumber, TTL: 64}, pkt)
}

// onICMP is called for each ICMP packet before the stack could answer an echo by itself.
func (g *Gateway) onICMP(src, dst tcpip.Address) {
	g.cfg.Decide(g.ctx, egress.Flow{
		Session: g.cfg.Session,
		Sandbox: g.cfg.Sandbox,
		Proto:   egress.ICMP,
		Src:     netip.AddrPortFrom(addrPort(src, 0).Addr(), 0),
		Dst:     netip.AddrPortFrom(addrPort(dst, 0).Addr(), 0),
	})
}
