package wire

// TunnelSuffix is added to the path of the host's socket: there the guest connects for each tunnel, and says its token first.
const TunnelSuffix = "p"

// TokenSize is the length of a tunnel's token, in bytes.
const TokenSize = 32

// DialArgs go with dial: connect the TCP port on the loopback with the host.
type DialArgs struct {
	Port  uint16
	Token []byte
}
