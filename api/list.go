package api

import "encoding/json"

// List is one page of things.
type List[T any] struct {
	Data    []T  `json:"data" nullable:"false"`
	HasMore bool `json:"has_more" doc:"There are more after the last one of these."`
}

// MarshalJSON writes an empty list as [], never as null.
func (l List[T]) MarshalJSON() ([]byte, error) {
	data := l.Data
	if data == nil {
		data = []T{}
	}
	return json.Marshal(struct {
		Data    []T  `json:"data"`
		HasMore bool `json:"has_more"`
	}{data, l.HasMore})
}

// Page asks for a part of a list.
type Page struct {
	Limit int    // 1 to MaxLimit; the server fills in DefaultLimit
	After string // the id (for events: the seq) of the last one already seen; "" starts at the beginning
}

// The bounds of Page.Limit.
const (
	DefaultLimit = 100
	MaxLimit     = 1000
)
