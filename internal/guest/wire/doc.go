// Package wire is the language of the link between the guest inside a sandbox and its host end.
//
// One unix stream socket carries length-prefixed frames in both directions. The guest dials; it says Hello, the host answers
// Welcome, and from then on every frame stands for itself:
//
//	host → guest   Request, Forget, Ack, ExitAck, Ping, Pong
//	guest → host   Reply, Output, EOF, Exit, Event, Ping, Pong
//
// # Guarantees
//
//   - A frame is at most MaxFrame bytes; a longer one, or one that does not parse, is an error of the connection and of nothing else.
//   - A Request has an id that is unique within one host instance (see Welcome). The host repeats it on the next connection until
//     it has a Reply; the guest runs it once and keeps the Reply until it is told to Forget it.
//   - Output carries a byte offset. The guest keeps what has not been acknowledged and sends it again on the next connection, so
//     the host may see bytes twice but never misses any.
//   - Exit is repeated until ExitAck, and follows all output up to the sizes that it names.
//   - Events (file watches) may be lost when a connection breaks; the host asks for the watch again and is told so.
//
// The package uses the standard library alone, since the guest links it. Values received from the other side are data from
// a stranger: decoders check every length and never panic.
package wire
