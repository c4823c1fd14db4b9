package config

import (
	"fmt"

	"github.com/hydrant-mcp/hydrant/handler"
)

// readAsk reads HYDRANT_ASK, which makes a runtime that streams ask the clients of 2025-11-25 as one does that cannot:
// "suspend" ends the response with the questions of a tool that returns them, "hold" keeps the call running, "auto" is
// what the runtime is best at.
func (c *Config) readAsk(value string) error {
	switch value {
	case "auto":
		c.Ask = handler.AskAuto
	case "hold":
		c.Ask = handler.AskHold
	case "suspend":
		c.Ask = handler.AskSuspend
	default:
		return fmt.Errorf("%q is none of auto, hold and suspend", value)
	}
	return nil
}
