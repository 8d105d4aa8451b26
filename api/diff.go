package api

// Diff compares two sessions, or two checkpoints, from their common point.
type Diff struct {
	A          string         `json:"a" doc:"As asked for: S or S@CKPT."`
	B          string         `json:"b"`
	Files      []FileDiff     `json:"files" nullable:"false"`
	Transcript TranscriptDiff `json:"transcript"`
}

// FileDiff is one file that differs.
type FileDiff struct {
	Path   string `json:"path"`
	Change string `json:"change" enum:"added,removed,changed" doc:"From A to B."`
	ASize  int64  `json:"a_size"`
	BSize  int64  `json:"b_size"`
	Text   string `json:"text,omitempty" doc:"A unified diff, for text files that are not too large."`
}

// TranscriptDiff is what each side has after the common point.
type TranscriptDiff struct {
	CommonSessionID string  `json:"common_session_id" doc:"Whose log common_seq counts in; empty if nothing is common."`
	CommonSeq       uint64  `json:"common_seq"`
	A               []Event `json:"a" nullable:"false" doc:"The messages and tool calls of A alone."`
	B               []Event `json:"b" nullable:"false"`
}
