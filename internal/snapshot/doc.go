// Package snapshot stores the contents of checkpoints: memory images and whatever else belongs to one, as chunks that are
// addressed by what they hold, compressed, encrypted and verified.
//
// # Terms
//
//   - A lineage is a session with its forks: those who may share chunks. It has a key of its own. Nothing is shared between
//     lineages, since a store in which one lineage can find another's chunks tells each what the others hold.
//   - A chunk is a run of whole pages (4 KiB) of a stream. Its id is the keyed BLAKE3 hash of its bytes.
//   - A pack is an object of some megabytes with many chunks and their table.
//   - A tree lists the chunks of a stream. Its nodes are chunks themselves, and cut by content, so that two streams which
//     differ in one place share all but a few nodes.
//   - A manifest names the streams of one snapshot. It is written last: a snapshot without one does not exist.
//
// # Where a stream is cut
//
// After a page whose checksum ends in four zero bits, but not before 4 pages and at 64 pages at the latest: 64 KiB on average. Memory
// images are lists of the pages in use, so that one page more moves all that follow by one page; cut by content, they
// are found again. Pages of zeros are counted and not stored.
//
// # Guarantees
//
//   - Commit returns after everything that the manifest names is on stable storage. A crash before leaves packs that no manifest
//     names, which Collect removes, and nothing else.
//   - Each byte that is read has been verified: it was written under this lineage's key, in this place of this stream.
//   - Collect deletes nothing that a manifest names, that an open Snapshot reads, or that a Draft has written or found; also when
//     all of them happen at the same time, and when it dies at any point. It waits for none of them.
//   - Destroy deletes the key first. What is left of the lineage cannot be read from then on, by anybody.
//
// # Locks
//
// lineage.mu guards the table of chunks and the leases; it is held for look-ups and never while an object is read or written.
// lineage.collecting admits one Collect or Repair at a time, and is taken before mu.
//
// The shape (content-defined chunks, packs with a table, mark and sweep) follows what backup programs do, of which restic's design
// document (https://restic.readthedocs.io/en/stable/100_references.html) is the best description.
package snapshot
