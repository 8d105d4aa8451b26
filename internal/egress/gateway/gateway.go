package gateway

import (
	"context"
	"fmt"
	"net/netip"
	"os"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"perdure.dev/perdure/internal/egress"
	"perdure.dev/perdure/internal/id"
)

const (
	nic         = tcpip.NICID(1)
	mtu         = 1500
	maxInFlight = 256 // TCP connections being decided; more are reset by the stack
)

// linkAddress is the gateway's Ethernet address; locally administered.
const linkAddress = tcpip.LinkAddress("\x02pdr\x00\x01")

// Config says whose packets these are and who judges them.
type Config struct {
	Session id.Session
	Sandbox id.Sandbox
	Decide  egress.Decide
}

// Gateway is a running gateway. It owns its device.
type Gateway struct {
	cfg    Config
	ctx    context.Context // the gateway's own run: ended by Close
	cancel context.CancelCauseFunc
	stack  *stack.Stack
	device *os.File
}

// New starts a gateway on the TAP device, which it takes over. ctx bounds the life of the gateway.
func New(ctx context.Context, device *os.File, cfg Config) (*Gateway, error) {
	link, err := fdbased.New(&fdbased.Options{
		FDs:                []int{int(device.Fd())},
		MTU:                mtu,
		EthernetHeader:     true,
		Address:            linkAddress,
		PacketDispatchMode: fdbased.Readv,
		IsPacketSocket:     []bool{false},
	})
	if err != nil {
		device.Close()
		return nil, fmt.Errorf("attach the gateway to the device: %w", err)
	}
	g, err := start(ctx, link, cfg)
	if err != nil {
		device.Close()
		return nil, err
	}
	g.device = device
	return g, nil
}

// start builds the stack over any link; tests give one without a device.
func start(ctx context.Context, link stack.LinkEndpoint, cfg Config) (*Gateway, error) {
	g := &Gateway{cfg: cfg}
	g.ctx, g.cancel = context.WithCancelCause(ctx)
	g.stack = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
	})
	tcpForwarder := tcp.NewForwarder(g.stack, 0, maxInFlight, g.onTCP)
	g.stack.SetTransportProtocolHandler(tcp.ProtocolNumber, tcpForwarder.HandlePacket)
	g.stack.SetTransportProtocolHandler(udp.ProtocolNumber, g.onUDP)
	if err := g.stack.CreateNIC(nic, newFilter(link, g.onICMP)); err != nil {
		return nil, fmt.Errorf("make the gateway's interface: %s", err)
	}
	addr := tcpip.ProtocolAddress{
		Protocol: ipv4.ProtocolNumber,
		AddressWithPrefix: tcpip.AddressWithPrefix{
			Address:   tcpip.AddrFrom4(egress.GatewayAddr.As4()),
			PrefixLen: egress.Subnet.Bits(),
		},
	}
	if err := g.stack.AddProtocolAddress(nic, addr, stack.AddressProperties{}); err != nil {
		return nil, fmt.Errorf("give the gateway its address: %s", err)
	}
	// Promiscuous: packets for any address are ours to judge. Spoofing: we answer in the name of that address.
	if err := g.stack.SetPromiscuousMode(nic, true); err != nil {
		return nil, fmt.Errorf("make the gateway accept every address: %s", err)
	}
	if err := g.stack.SetSpoofing(nic, true); err != nil {
		return nil, fmt.Errorf("make the gateway answer for every address: %s", err)
	}
	g.stack.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}})
	return g, nil
}

// Close ends the gateway and closes its device. Flows under way are cut.
func (g *Gateway) Close() {
	g.cancel(fmt.Errorf("the gateway was closed"))
	g.stack.RemoveNIC(nic)
	if g.device != nil {
		g.device.Close()
	}
}

func (g *Gateway) flow(proto egress.Proto, tid stack.TransportEndpointID) egress.Flow {
	return egress.Flow{
		Session: g.cfg.Session,
		Sandbox: g.cfg.Sandbox,
		Proto:   proto,
		Src:     addrPort(tid.RemoteAddress, tid.RemotePort),
		Dst:     addrPort(tid.LocalAddress, tid.LocalPort),
	}
}

func addrPort(a tcpip.Address, port uint16) netip.AddrPort {
	ip, _ := netip.AddrFromSlice(a.AsSlice())
	return netip.AddrPortFrom(ip, port)
}
