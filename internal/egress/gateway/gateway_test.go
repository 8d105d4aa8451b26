package gateway

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"perdure.dev/perdure/internal/egress"
)

// rig is a gateway without a device: the test is the sandbox.
type rig struct {
	t     *testing.T
	link  *channel.Endpoint
	flows chan egress.Flow
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, link: channel.New(16, mtu, ""), flows: make(chan egress.Flow, 16)}
	g, err := start(t.Context(), r.link, Config{Session: "sess_a", Sandbox: "sbx_a", Decide: func(_ context.Context, f egress.Flow) egress.Verdict {
		r.flows <- f
		return egress.Verdict{}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return r
}

// send sends a transport packet to dst.
func (r *rig) send(proto tcpip.TransportProtocolNumber, dst netip.Addr, transport []byte) {
	b := make([]byte, header.IPv4MinimumSize, header.IPv4MinimumSize+len(transport))
	ip := header.IPv4(b)
	ip.Encode(&header.IPv4Fields{
		TotalLength: uint16(cap(b)), TTL: 64, Protocol: uint8(proto),
		SrcAddr: tcpip.AddrFrom4(egress.SandboxAddr.As4()), DstAddr: tcpip.AddrFrom4(dst.As4()),
	})
	ip.SetChecksum(^ip.CalculateChecksum())
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(append(b, transport...))})
	defer pkt.DecRef()
	r.link.InjectInbound(header.IPv4ProtocolNumber, pkt)
}

func (r *rig) pseudo(proto tcpip.TransportProtocolNumber, dst netip.Addr, length int) uint16 {
	return header.PseudoHeaderChecksum(proto, tcpip.AddrFrom4(egress.SandboxAddr.As4()), tcpip.AddrFrom4(dst.As4()), uint16(length))
}

func (r *rig) udp(dst netip.AddrPort, payload []byte) {
	b := make([]byte, header.UDPMinimumSize, header.UDPMinimumSize+len(payload))
	u := header.UDP(b)
	u.Encode(&header.UDPFields{SrcPort: 4000, DstPort: dst.Port(), Length: uint16(cap(b))})
	u.SetChecksum(^u.CalculateChecksum(checksum.Checksum(payload, r.pseudo(header.UDPProtocolNumber, dst.Addr(), cap(b)))))
	r.send(header.UDPProtocolNumber, dst.Addr(), append(b, payload...))
}

func (r *rig) reply() header.IPv4 {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
	defer cancel()
	pkt := r.link.ReadContext(ctx)
	if pkt == nil {
		r.t.Fatal("no reply")
	}
	defer pkt.DecRef()
	return header.IPv4(pkt.ToView().AsSlice())
}

func (r *rig) flow() egress.Flow {
	r.t.Helper()
	select {
	case f := <-r.flows:
		return f
	case <-time.After(10 * time.Second):
		r.t.Fatal("no flow")
		return egress.Flow{}
	}
}

func TestTCPIsReset(t *testing.T) {
	r := newRig(t)
	dst := netip.MustParseAddrPort("93.184.216.34:443")
	b := make([]byte, header.TCPMinimumSize)
	tcp := header.TCP(b)
	tcp.Encode(&header.TCPFields{SrcPort: 4000, DstPort: dst.Port(), SeqNum: 7, DataOffset: header.TCPMinimumSize, Flags: header.TCPFlagSyn, WindowSize: 1000})
	tcp.SetChecksum(^tcp.CalculateChecksum(r.pseudo(header.TCPProtocolNumber, dst.Addr(), len(b))))
	r.send(header.TCPProtocolNumber, dst.Addr(), b)
	f := r.flow()
	want := egress.Flow{Session: "sess_a", Sandbox: "sbx_a", Proto: egress.TCP, Src: netip.AddrPortFrom(egress.SandboxAddr, 4000), Dst: dst}
	if f != want {
		t.Errorf("flow %+v, want %+v", f, want)
	}
	answer := header.TCP(r.reply().Payload())
	if answer.Flags()&header.TCPFlagRst == 0 || answer.AckNumber() != 8 {
		t.Errorf("flags %v, ack %d", answer.Flags(), answer.AckNumber())
	}
}

func TestDNSIsRefusedByName(t *testing.T) {
	r := newRig(t)
	for _, server := range []string{"10.0.2.2:53", "8.8.8.8:53"} {
		r.udp(netip.MustParseAddrPort(server), query)
		if f := r.flow(); f.Name != "example.com" || f.Dst.String() != server {
			t.Errorf("flow %+v", f)
		}
		ip := r.reply()
		if got := addrPort(ip.SourceAddress(), 53).String(); got != server {
			t.Errorf("answered by %s", got)
		}
		if answer := header.UDP(ip.Payload()).Payload(); len(answer) != 29 || answer[3]&0xf != dnsRefused {
			t.Errorf("answer %x", answer)
		}
	}
}

func TestUDPIsUnreachable(t *testing.T) {
	r := newRig(t)
	r.udp(netip.MustParseAddrPort("8.8.8.8:9999"), []byte("hello"))
	if f := r.flow(); f.Proto != egress.UDP || f.Name != "" {
		t.Errorf("flow %+v", f)
	}
	ip := r.reply()
	if icmp := header.ICMPv4(ip.Payload()); ip.TransportProtocol() != header.ICMPv4ProtocolNumber || icmp.Type() != header.ICMPv4DstUnreachable || icmp.Code() != header.ICMPv4PortUnreachable {
		t.Errorf("reply %v %v", icmp.Type(), icmp.Code())
	}
}

func TestEchoIsJudgedAndNotAnswered(t *testing.T) {
	r := newRig(t)
	b := make([]byte, header.ICMPv4MinimumSize)
	icmp := header.ICMPv4(b)
	icmp.SetType(header.ICMPv4Echo)
	icmp.SetChecksum(^checksum.Checksum(b, 0))
	r.send(header.ICMPv4ProtocolNumber, netip.MustParseAddr("8.8.8.8"), b)
	if f := r.flow(); f.Proto != egress.ICMP || f.Dst.Addr().String() != "8.8.8.8" {
		t.Errorf("flow %+v", f)
	}
	if n := r.link.NumQueued(); n != 0 {
		t.Errorf("%d packets in answer", n)
	}
}

func TestOtherProtocolsAreDropped(t *testing.T) {
	r := newRig(t)
	r.send(132, netip.MustParseAddr("8.8.8.8"), make([]byte, 20)) // SCTP
	r.udp(netip.MustParseAddrPort("8.8.8.8:9999"), nil)
	if f := r.flow(); f.Proto != egress.UDP {
		t.Errorf("flow %+v", f)
	}
}
