package event

import (
	"bytes"
	"encoding/json"
	"reflect"

	"perdure.dev/perdure/internal/errdefs"
)

// The codes of a log's errors, for errdefs.CodeOf.
const (
	CodeInvalid         = "invalid_event"
	CodeSessionNotFound = "session_not_found"
	CodeStaleLease      = "stale_lease"
	CodeSeqConflict     = "seq_conflict"
	CodeNameTaken       = "name_taken"
	CodeLogCorrupt      = "log_corrupt"
	CodeDiskFull        = "disk_full"
	CodeUnknownCursor   = "unknown_cursor"
)

// MaxDataBytes bounds the JSON of one event's data. Whatever is larger belongs into an artifact.
const MaxDataBytes = 16 << 20

// NewData returns a pointer to a zero payload of the given type, or nil for a type that does not exist.
func NewData(t Type) any {
	switch t {
	case SessionCreated:
		return new(SessionCreatedData)
	case SessionForked:
		return new(SessionForkedData)
	case SessionRolledBack:
		return new(SessionRolledBackData)
	case SessionConfigured:
		return new(SessionConfiguredData)
	case SessionImported:
		return new(SessionImportedData)
	case SessionCanceled:
		return new(SessionCanceledData)
	case SessionFinished:
		return new(SessionFinishedData)
	case SessionFailed:
		return new(SessionFailedData)
	case LimitWarned, LimitReached:
		return new(LimitData)
	case MessageUser:
		return new(MessageUserData)
	case MessageAgent:
		return new(MessageAgentData)
	case TurnStarted:
		return new(TurnStartedData)
	case TurnFinished:
		return new(TurnFinishedData)
	case ModelRequested:
		return new(ModelRequestedData)
	case ModelResponded:
		return new(ModelRespondedData)
	case ModelFailed:
		return new(ModelFailedData)
	case ContextTrimmed:
		return new(ContextTrimmedData)
	case ToolRequested:
		return new(ToolRequestedData)
	case ToolStarted:
		return new(ToolStartedData)
	case ToolFinished:
		return new(ToolFinishedData)
	case ExecStarted:
		return new(ExecStartedData)
	case ExecFinished:
		return new(ExecFinishedData)
	case CheckpointCreated:
		return new(CheckpointCreatedData)
	case CheckpointDurable:
		return new(CheckpointDurableData)
	case CheckpointFailed:
		return new(CheckpointFailedData)
	case CheckpointDeleted:
		return new(CheckpointDeletedData)
	case CheckpointMissed:
		return new(CheckpointMissedData)
	case WorkspaceStarted:
		return new(WorkspaceStartedData)
	case WorkspacePaused, WorkspaceUnpaused:
		return new(WorkspacePausedData)
	case WorkspaceSuspended, WorkspaceStopped:
		return new(WorkspaceSuspendedData)
	case WorkspaceResumed:
		return new(WorkspaceResumedData)
	case WorkspaceLost:
		return new(WorkspaceLostData)
	case WorkspaceDevolved:
		return new(WorkspaceDevolvedData)
	}
	return nil
}

// Decode returns the payload of e as a pointer to the struct of its type (*MessageUserData for message.user, …). It fails
// with log_corrupt when the data is not of that shape: no such event could have been appended.
func Decode(e Event) (any, error) {
	p := NewData(e.Type)
	if p == nil {
		return nil, errdefs.New(errdefs.Corrupt, CodeLogCorrupt, "event %d of session %s has the unknown type %q", e.Seq, e.SessionID, e.Type).
			WithHint("a newer version of Perdure may have written it; use that version")
	}
	if err := json.Unmarshal(e.Data, p); err != nil {
		return nil, errdefs.Wrap(err, errdefs.Corrupt, CodeLogCorrupt, "event %d of session %s (%s) has broken data", e.Seq, e.SessionID, e.Type)
	}
	return p, nil
}

// DecodeData is Decode for a caller that knows the type. It fails with invalid_event when T is not the payload struct of
// e.Type, and with log_corrupt as Decode does.
func DecodeData[T any](e Event) (T, error) {
	var zero T
	if _, ok := NewData(e.Type).(*T); !ok {
		return zero, errdefs.New(errdefs.Invalid, CodeInvalid, "%T is not the payload of %q", zero, e.Type)
	}
	p, err := Decode(e)
	if err != nil {
		return zero, err
	}
	return *(p.(*T)), nil
}

// Validate reports whether a log would take d: a known type, with the payload struct of that type (or a pointer to it, or
// JSON that decodes into it), not too large, and with a canonical form. It fails with invalid_event.
func Validate(d Draft) error {
	_, _, err := Encode(d)
	return err
}

// Encode validates d and returns its data twice: as a log stores it, and in canonical form for Hash.
func Encode(d Draft) (data json.RawMessage, canonical []byte, err error) {
	want := NewData(d.Type)
	if want == nil {
		return nil, nil, errdefs.New(errdefs.Invalid, CodeInvalid, "unknown event type %q", d.Type)
	}
	data, err = marshal(d, want)
	if err != nil {
		return nil, nil, err
	}
	if len(data) > MaxDataBytes {
		return nil, nil, errdefs.New(errdefs.Invalid, CodeInvalid, "the data of a %s event has %d bytes; at most %d fit", d.Type, len(data), MaxDataBytes).
			WithHint("store it as an artifact and refer to that")
	}
	if len(data) == 0 || data[0] != '{' {
		return nil, nil, errdefs.New(errdefs.Invalid, CodeInvalid, "the data of a %s event must be a JSON object", d.Type)
	}
	canonical, err = Canonical(data)
	return data, canonical, err
}

func marshal(d Draft, want any) (json.RawMessage, error) {
	raw, isRaw := d.Data.(json.RawMessage)
	if !isRaw {
		got, t := reflect.TypeOf(d.Data), reflect.TypeOf(want)
		if got != t && got != t.Elem() || got == t && reflect.ValueOf(d.Data).IsNil() {
			return nil, errdefs.New(errdefs.Invalid, CodeInvalid, "%T is not the payload of %q", d.Data, d.Type)
		}
		var buf bytes.Buffer
		enc := json.NewEncoder(&buf)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(d.Data); err != nil {
			return nil, errdefs.Wrap(err, errdefs.Invalid, CodeInvalid, "the data of a %s event cannot be written as JSON", d.Type)
		}
		raw = buf.Bytes()
	} else if err := json.Unmarshal(raw, want); err != nil {
		return nil, errdefs.Wrap(err, errdefs.Invalid, CodeInvalid, "the data of a %s event does not have its shape", d.Type)
	}
	// Raw parts (tool arguments, for one) pass through encoding/json unchanged, invalid UTF-8 included.
	return bytes.ToValidUTF8(bytes.TrimSpace(raw), []byte("\uFFFD")), nil
}
