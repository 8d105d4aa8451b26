package openai_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"perdure.dev/perdure/internal/model"
	"perdure.dev/perdure/internal/model/openai"
)

func answer(t *testing.T, status int, media, body string) (model.Response, []model.Delta, error) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/chat/completions" || r.Header.Get("Authorization") != "Bearer k" {
			t.Errorf("%s with %v", r.URL, r.Header)
		}
		w.Header().Set("Content-Type", media)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	defer s.Close()
	p, err := openai.New(openai.Config{BaseURL: s.URL + "/v1/", APIKey: "k"}, "m")
	if err != nil {
		t.Fatal(err)
	}
	var deltas []model.Delta
	r, err := p.Chat(t.Context(), model.Request{Messages: []model.Message{{Role: model.User, Text: "hi"}}}, func(d model.Delta) { deltas = append(deltas, d) })
	return r, deltas, err
}

// Endpoints that speak the protocol take liberties with it.
func TestLiberties(t *testing.T) {
	one := func(delta string) string {
		return fmt.Sprintf(`data: {"error":null,"choices":[{"index":0,"delta":%s,"finish_reason":null}],"usage":null}`+"\n\n", delta)
	}
	const end = `data: {"choices":[{"index":0,"delta":{"content":null,"role":"assistant"},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
	r, deltas, err := answer(t, 200, "text/event-stream; charset=utf-8", ": processing\n\n"+
		one(`{"reasoning_content":"hm"}`)+one(`{"content":[{"type":"text","text":"He"},{"type":"x"}]}`)+one(`{"content":"llo"}`)+
		one(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"run","arguments":{"command":"ls"}}}]}`)+end)
	if err != nil || r.Text != "Hello" || len(r.ToolCalls) != 1 || string(r.ToolCalls[0].Arguments) != `{"command":"ls"}` || r.ToolCalls[0].Cut || r.Stop != model.StopTools {
		t.Errorf("%+v, %v", r, err)
	}
	if len(deltas) != 4 || deltas[0].Thinking != "hm" || deltas[1].Text != "He" || deltas[3].ToolName != "run" {
		t.Errorf("deltas %+v", deltas)
	}
	if r, _, err := answer(t, 200, "", one(`{"content":"x"}`)+end); err != nil || r.Text != "x" {
		t.Errorf("without a media type: %+v, %v", r, err)
	}
	for _, x := range []struct {
		status      int
		media, body string
		class       model.Class
		text        string
	}{
		{200, "text/event-stream", one(`{"content":"a"}`) + `data: {"error":{"message":"busy","type":"server_error","code":503}}` + "\n\n", model.Overloaded, "busy"},
		{200, "text/event-stream", `data: {"error":"it broke"}` + "\n\n", model.Overloaded, "it broke"},
		{200, "text/event-stream", "data: {nonsense\n\n", model.Network, "garbled"},
		{200, "application/json", `{"choices":[{"message":{"content":"whole"}}]}`, model.BadRequest, "did not stream"},
		{200, "application/json", `{"error":{"message":"slow down","type":"rate_limit"}}`, model.RateLimited, "slow down"},
		{404, "text/html", "<html>Not Found</html>", model.BadRequest, "Not Found"},
		{400, "application/json", `{"error":"model not loaded"}`, model.BadRequest, "model not loaded"},
		{429, "application/json", `{"error":{"type":"insufficient_quota","code":"insufficient_quota","message":"no money"}}`, model.Auth, "no money"},
	} {
		_, _, err := answer(t, x.status, x.media, x.body)
		if e := model.AsError(err); e == nil || e.Class != x.class || !strings.Contains(err.Error(), x.text) {
			t.Errorf("%d %s: %v", x.status, x.body, err)
		}
	}
}
