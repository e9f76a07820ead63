// A page that is opened from a folder may start no worker. There, this class runs the script of the
// search in a hidden frame instead. Zensical would load such a class from the network; the name of
// this file tells it that there is one.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inner = frame.contentWindow;
      this.inner.postMessage = data =>
        this.dispatchEvent(new MessageEvent("message", {data: structuredClone(data)}));
      const script = frame.contentDocument.createElement("script");
      this.loaded = new Promise(resolve => (script.onload = resolve));
      script.src = url;
      frame.contentDocument.head.append(script);
    }

    async postMessage(data) {
      await this.loaded;
      const event = new MessageEvent("message", {data: structuredClone(data)});
      this.inner.dispatchEvent(event);
    }

    dispatchEvent(event) {
      this.onmessage?.(event);
      return super.dispatchEvent(event);
    }
  };
}
