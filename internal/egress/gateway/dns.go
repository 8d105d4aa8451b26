package gateway

import (
	"encoding/binary"
	"strings"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
)

// DNS messages: RFC 1035, section 4.1.
const (
	dnsHeader   = 12
	dnsRefused  = 5
	dnsResponse = 1 << 15
	maxName     = 255
)

// refusal returns the answer with code REFUSED to query, or nil if query is not a question with one entry.
func refusal(query []byte) []byte {
	end := questionEnd(query)
	if end < 0 {
		return nil
	}
	reply := append([]byte(nil), query[:end]...)
	flags := binary.BigEndian.Uint16(query[2:])
	keep := flags & 0x7900 // opcode and "recursion desired", as asked
	binary.BigEndian.PutUint16(reply[2:], dnsResponse|keep|dnsRefused)
	binary.BigEndian.PutUint16(reply[4:], 1)
	for _, count := range []int{6, 8, 10} { // answers, authorities, additional
		binary.BigEndian.PutUint16(reply[count:], 0)
	}
	return reply
}

// questionEnd returns the offset behind the only question of query, or -1.
func questionEnd(query []byte) int {
	if len(query) < dnsHeader || binary.BigEndian.Uint16(query[2:])&dnsResponse != 0 || binary.BigEndian.Uint16(query[4:]) != 1 {
		return -1
	}
	i := dnsHeader
	for i < len(query) && i-dnsHeader <= maxName {
		n := int(query[i])
		i++
		switch {
		case n == 0:
			if i+4 > len(query) {
				return -1
			}
			return i + 4
		case n > 63: // compression has no place in a question
			return -1
		}
		i += n
	}
	return -1
}

// questionName returns the name asked for, lower case, without the final dot; "" if query is malformed.
func questionName(query []byte) string {
	end := questionEnd(query)
	if end < 0 {
		return ""
	}
	var labels []string
	for i := dnsHeader; query[i] != 0; i += 1 + int(query[i]) {
		labels = append(labels, string(query[i+1:i+1+int(query[i])]))
	}
	return strings.ToLower(strings.Join(labels, "."))
}

// udpPacket makes the datagram from tid's local to its remote end.
func udpPacket(tid stack.TransportEndpointID, route *stack.Route, payload []byte) *stack.PacketBuffer {
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{
		ReserveHeaderBytes: int(route.MaxHeaderLength()) + header.UDPMinimumSize,
		Payload:            buffer.MakeWithData(payload),
	})
	h := header.UDP(pkt.TransportHeader().Push(header.UDPMinimumSize))
	pkt.TransportProtocolNumber = udp.ProtocolNumber
	length := uint16(pkt.Size())
	h.Encode(&header.UDPFields{SrcPort: tid.LocalPort, DstPort: tid.RemotePort, Length: length})
	sum := route.PseudoHeaderChecksum(udp.ProtocolNumber, length)
	h.SetChecksum(^h.CalculateChecksum(checksum.Checksum(payload, sum)))
	return pkt
}
