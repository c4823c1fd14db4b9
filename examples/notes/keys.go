package notes

import (
	"encoding/base64"
	"fmt"
	"strings"
)

const keySize = 32 // bytes

// ParseKeys reads the environment variable HYDRANT_KEYS for [handler.Options].Keys: keys of 32 bytes in base64, separated
// by commas, the one that signs first. An empty list is nil. The keys stay out of the error.
//
// [handler.Options]: https://pkg.go.dev/github.com/hydrant-mcp/hydrant/handler#Options
func ParseKeys(list string) ([][]byte, error) {
	if list == "" {
		return nil, nil
	}
	var keys [][]byte
	for i, text := range strings.Split(list, ",") {
		key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
		if err != nil || len(key) != keySize {
			return nil, fmt.Errorf("HYDRANT_KEYS: key %d is not %d bytes in base64; make one with: openssl rand -base64 %[2]d",
				i+1, keySize)
		}
		keys = append(keys, key)
	}
	return keys, nil
}
