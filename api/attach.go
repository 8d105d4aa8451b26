package api

// An attached command speaks over a WebSocket. Binary messages carry bytes: one byte that names the stream, the byte offset in it
// as 8 bytes big-endian, then the data. Text messages carry an AttachMessage.
//
// The server sends hello first, output as it comes, ack for each input, and exit after the last byte of output. A client that is cut
// connects again with the offsets that it has reached and sends again what was not acknowledged: the offsets make repeats harmless.
const (
	AttachStdin  byte = 0
	AttachStdout byte = 1
	AttachStderr byte = 2

	AttachHeader = 9 // bytes before the data of a binary message
)

// The values of AttachMessage.Type.
const (
	AttachHello   = "hello"   // server: Exec as it is; its stdin_size is where input goes on
	AttachAck     = "ack"     // server: input up to Offset is accepted; with EOF, the input is closed
	AttachExit    = "exit"    // server: the command has ended, as Exec says; nothing follows
	AttachProblem = "problem" // server: something was refused; with End, nothing follows
	AttachEOF     = "eof"     // client: the input ends at Offset
	AttachResize  = "resize"  // client: the terminal has Rows and Cols
	AttachSignal  = "signal"  // client: send Signal to the process group
)

// AttachMessage is a control message of an attached command.
type AttachMessage struct {
	Type    string   `json:"type"`
	Exec    *Exec    `json:"exec,omitempty"`
	Problem *Problem `json:"problem,omitempty"`
	Refused string   `json:"refused,omitempty"` // with problem: the type of what was refused, "stdin" for input
	End     bool     `json:"end,omitempty"`
	Offset  int64    `json:"offset,omitempty"`
	EOF     bool     `json:"eof,omitempty"`
	Rows    uint16   `json:"rows,omitempty"`
	Cols    uint16   `json:"cols,omitempty"`
	Signal  string   `json:"signal,omitempty"`
}
