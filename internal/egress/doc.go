// Package egress is the seam between what leaves a sandbox and who decides about it.
//
// The gateway (package gateway, one per sandbox, inside its shim) turns every packet that leaves a sandbox into a Flow and asks one
// Decide function. Nothing else connects a sandbox to a network: there is no route around it.
//
// # Guarantees
//
//   - Every TCP connection attempt, UDP datagram and ICMP echo reaches Decide before anything answers it.
//   - A Flow's Session and Sandbox come from the device that the packet arrived on, never from something the sandbox can copy. So two
//     forks with the same memory are told apart.
//   - Whatever is not a Flow (other protocols, IPv6, ARP for others) is dropped.
//   - The zero Verdict refuses.
package egress
