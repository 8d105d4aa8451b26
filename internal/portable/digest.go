package portable

import (
	"archive/tar"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/zeebo/blake3"
)

// The members that are not of a part with many.
const (
	headerName   = "perdure.json"
	trailerName  = "trailer.json"
	ManifestName = "checkpoint/manifest.json"
)

// The directories of the others.
const (
	LogsDir      = "logs/"
	LayersDir    = "layers/"
	EngineDir    = "engine/"
	MemoryDir    = "memory/"
	SpoolDir     = "spool/"
	ArtifactsDir = "artifacts/"
)

// partOf returns which part a member belongs to: its first element, and in layers and logs the second too.
func partOf(name string) string {
	first, rest, deeper := strings.Cut(name, "/")
	if deeper && (first == "layers" || first == "logs") {
		second, _, _ := strings.Cut(rest, "/")
		return path.Join(first, second)
	}
	return first
}

// order says where a part may stand. Parts never go back.
func order(part string) int {
	first, _, _ := strings.Cut(part, "/")
	return slices.Index([]string{headerName, "logs", "checkpoint", "layers", "engine", "memory", "spool", "artifacts", trailerName}, first)
}

// digest hashes the members of a stream, part by part. A member counts with a line that describes it and with its contents:
//
//	"NAME" TYPE MODE UID GID MTIME SIZE "LINKNAME" "KEY"="VALUE"…\n
//
// in which TYPE is the character of tar, MODE octal, MTIME in nanoseconds since 1970, strings are quoted as by Go's %q, and the PAX records are those of
// extended attributes (SCHILY.xattr.) and of Perdure (PERDURE.), in the order of their keys.
type digest struct {
	parts []Part
	seen  map[string]bool
	h     *blake3.Hasher
}

func newDigest() *digest { return &digest{h: blake3.New(), seen: map[string]bool{}} }

// begin counts a member. It reports false for one whose part does not belong here.
func (d *digest) begin(h *tar.Header) bool {
	part := partOf(h.Name)
	if len(d.parts) == 0 || d.parts[len(d.parts)-1].Name != part {
		at := order(part)
		if at < 0 || d.seen[part] || len(d.parts) > 0 && at < order(d.parts[len(d.parts)-1].Name) || len(d.parts) == 0 && at != 0 {
			return false
		}
		d.end()
		d.seen[part] = true
		d.parts = append(d.parts, Part{Name: part})
		d.h.Reset()
	}
	p := &d.parts[len(d.parts)-1]
	p.Entries++
	p.Bytes += h.Size
	fmt.Fprintf(d.h, "%q %c %o %d %d %d %d %q", h.Name, h.Typeflag, h.Mode, h.Uid, h.Gid, h.ModTime.UnixNano(), h.Size, h.Linkname)
	for _, key := range slices.Sorted(maps.Keys(h.PAXRecords)) {
		if strings.HasPrefix(key, "SCHILY.xattr.") || strings.HasPrefix(key, "PERDURE.") {
			fmt.Fprintf(d.h, " %q=%q", key, h.PAXRecords[key])
		}
	}
	io.WriteString(d.h, "\n") // a hash takes all
	return true
}

// end ends the part in progress.
func (d *digest) end() {
	if n := len(d.parts); n > 0 && d.parts[n-1].Hash == "" {
		d.parts[n-1].Hash = hex.EncodeToString(d.h.Sum(nil))
	}
}

// trailer returns what a stream ends with whose members were all counted.
func (d *digest) trailer() Trailer {
	d.end()
	t := Trailer{Parts: d.parts}
	for _, p := range d.parts {
		t.Entries += p.Entries
		t.Bytes += p.Bytes
	}
	return t
}
