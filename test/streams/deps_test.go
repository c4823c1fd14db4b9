package streams

// What these tests run is built by the harness, where the test cache does not see it: this import makes the cached results
// of these tests depend on the product.
import _ "github.com/hydrant-mcp/hydrant/examples/everything/config"
