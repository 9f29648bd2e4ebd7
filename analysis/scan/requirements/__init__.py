"""Requirements as projects state them: lists, manifests, documents, and the shares of projects that state
them."""
