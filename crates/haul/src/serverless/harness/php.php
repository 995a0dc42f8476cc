<?php
// Runs handlers in one warm interpreter. Requests come on standard input, answers go to standard output; what handlers
// echo is theirs and is sent back with each job.
namespace Haul {
    class Retry extends \Exception { public $exitcode = 100; }
    class Failed extends \Exception { public $exitcode = 400; }
}

namespace {
    error_reporting(E_ALL & ~E_DEPRECATED);
    ini_set('display_errors', '0');
    $haul_types = [];
    $haul_answers = '';

    function haul_call(callable $run): array {
        try {
            return [200, '', $run()];
        } catch (\Throwable $error) {
            $code = isset($error->exitcode) && is_int($error->exitcode) ? $error->exitcode : 500;
            if ($code < 100 || $code > 599) $code = 500;
            $told = $error instanceof \Haul\Retry || $error instanceof \Haul\Failed;
            return [$code, substr($told ? $error->getMessage() : (string) $error, -4000), null];
        }
    }

    function haul_say(string $kind, int $code, $began, string $output = '', ?string $result = null, string $reason = ''): void {
        global $haul_answers;
        $micros = intdiv(hrtime(true) - $began, 1000);
        $size = $result === null ? -1 : strlen($result);
        $haul_answers .= "$kind $code $micros " . strlen($output) . " $size " . strlen($reason) . "\n";
        $haul_answers .= $output . ($result ?? '') . $reason;
    }

    function haul_flush(): void {
        global $haul_answers;
        while ($haul_answers !== '') {
            $sent = fwrite(STDOUT, $haul_answers);
            if ($sent === false) exit(1);
            $haul_answers = substr($haul_answers, $sent);
        }
        fflush(STDOUT);
    }

    function haul_read(int $size): string {
        $text = '';
        while (strlen($text) < $size) {
            $more = fread(STDIN, $size - strlen($text));
            if ($more === false || $more === '') exit(0);
            $text .= $more;
        }
        return $text;
    }

    // The code sees no names of ours but its payload.
    function haul_eval(string $haul_code, ?string $payload = null) {
        $haul_code = preg_replace('/^\s*<\?php/', '', $haul_code);
        return eval($haul_code);
    }

    function haul_load(string $name, array $parts): void {
        global $haul_types;
        if (!empty($parts['first']) && !empty($parts['before'])) haul_eval($parts['before']);
        $haul_types[$name] = ['parts' => $parts, 'handle' => null];
    }

    function haul_job(string $name, string $payload) {
        global $haul_types;
        if ($haul_types[$name]['handle']) return ($haul_types[$name]['handle'])($payload);
        $value = haul_eval($haul_types[$name]['parts']['body'], $payload);
        if (!($value instanceof \Closure)) return $value;
        $haul_types[$name]['handle'] = $value;
        return $value($payload);
    }

    function haul_step(string $name, string $key): void {
        global $haul_types;
        if (!empty($haul_types[$name]['parts'][$key])) haul_eval($haul_types[$name]['parts'][$key]);
    }

    function haul_run(string $type, string $id, bool $raw, string $payload): void {
        if (!$raw && substr($payload, -1) === "\n") $payload = substr($payload, 0, -1);
        putenv("HAUL_JOB_ID=$id");
        $began = hrtime(true);
        ob_start();
        [$code, $reason, $value] = haul_call(fn () => haul_job($type, $payload));
        $output = '';
        while (ob_get_level() > 0) $output = ob_get_clean() . $output;
        $result = null;
        if ($code === 200 && $value !== null) {
            $result = is_string($value) ? $value : json_encode($value);
            if ($result === false) [$code, $reason, $result] = [500, 'the result cannot be written as JSON', null];
        }
        haul_say('j', $code, $began, $output, $result, $reason);
    }

    // A handler that exits ends the interpreter: what it printed is not an answer, and how it ended is told by its status.
    register_shutdown_function(function (): void {
        while (ob_get_level() > 0) ob_end_clean();
        haul_flush();
    });
    $haul_type = '';
    while (($haul_line = fgets(STDIN)) !== false) {
        $haul_words = explode(' ', rtrim($haul_line, "\n"));
        $haul_began = hrtime(true);
        if ($haul_words[0] === 'L') {
            $haul_parts = json_decode(haul_read((int) $haul_words[2]), true);
            [$haul_code, $haul_reason] = haul_call(fn () => haul_load($haul_words[1], $haul_parts));
            haul_say('l', $haul_code, $haul_began, '', null, $haul_reason);
        } elseif ($haul_words[0] === 'B') {
            $haul_type = $haul_words[1];
            putenv("HAUL_JOBTYPE=$haul_type");
            [$haul_code, $haul_reason] = haul_call(fn () => haul_step($haul_type, 'beforeEach'));
            haul_say('b', $haul_code, $haul_began, '', null, $haul_reason);
        } elseif ($haul_words[0] === 'J') {
            haul_run($haul_type, $haul_words[1], $haul_words[2] === '1', haul_read((int) $haul_words[3]));
            if ($haul_words[4] !== '1') continue;
        } elseif ($haul_words[0] === 'A') {
            [$haul_code, $haul_reason] = haul_call(fn () => haul_step($haul_type, 'afterEach'));
            haul_say('a', $haul_code, $haul_began, '', null, $haul_reason);
        }
        haul_flush();
    }
}
