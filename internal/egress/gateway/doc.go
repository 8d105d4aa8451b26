// Package gateway is the userspace network at the other end of a sandbox's only interface.
//
// It reads Ethernet frames from a TAP device, terminates them in a TCP/IP stack of its own, and asks an egress.Decide about each
// flow. A refused TCP connection is reset, a refused datagram is answered with "port unreachable", a refused DNS question with the
// code REFUSED: tools fail at once instead of hanging.
//
// It is a package of its own because it links gVisor's network stack, which the perdure binary must stay free of.
package gateway
