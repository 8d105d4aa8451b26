// Package portable is the form in which a session travels: one stream with its log, its files and, if wanted, its RAM. docs/archive-format.md describes it
// for other programs.
//
// A stream is a tar archive in PAX form, compressed with zstd. Its members come in this order, so that whoever reads it needs no second look:
//
//	perdure.json              the Header: what follows, and what it needs
//	logs/SESS.jsonl           each log, an event a line as the API has it: ancestors first, the session itself last
//	checkpoint/manifest.json  of the checkpoint, as it was stored
//	layers/LAYER/…            its file layers, bottom first, see layer.Entry
//	engine/…                  the driver's own files that the image needs, see sandbox.Driver
//	memory/…                  the engine's image
//	spool/…                   output of the commands that ran at the cut
//	artifacts/…               what transcripts name
//	trailer.json              the Trailer: how many members there were, and their hashes
//
// # Guarantees
//
//   - Reader returns io.EOF only after the trailer, when every byte before it is what was written. A stream that was cut is archive_truncated, one that
//     was changed archive_damaged.
//   - Reader bounds what it returns: entries, the size of each part, and the whole by what the header says.
//   - There are no keys in a stream, of lineages or others. RAM and files are in the clear: whoever has it has what the session had.
package portable
